"""`penstock search` against a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_group_commands import Penstock

from penstock.cli.main import run
from support.broker_process import Address

STARTED_MS = 1_700_000_000_000


@pytest.fixture
def penstock(
    broker: Address, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Penstock:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)
    return Penstock(capfdbinary)


@pytest.fixture
def topic(penstock: Penstock, topic_name: str, tmp_path: Path) -> str:
    """A topic with two partitions and 300 messages, one a second."""
    penstock("topic", "create", topic_name, "--partitions", "2")
    file = tmp_path / "records.json"
    file.write_text(
        "".join(
            json.dumps(
                {
                    "key": f"k{number % 3}",
                    "value": {"number": number, "text": f"Order {number}"},
                    "headers": {"region": "eu" if number == 7 else "us"},
                    "timestamp": STARTED_MS + number * 1_000,
                    "partition": number % 2,
                }
            )
            + "\n"
            for number in range(300)
        )
    )
    penstock("produce", topic_name, str(file), "--format", "json")
    return topic_name


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["order 299"], [299]),
        (["--json-path", "$.number=17"], [17]),
        (["--header", "region=e"], [7]),
        (["--filter", 'headers.region == "eu"'], [7]),
        (["--regex", '"number": ?29[5-9]'], [299, 298, 297, 296, 295]),
        (["--key", "k1", "--max", "2"], [298, 295]),
        (["--since", str(STARTED_MS + 3_000), "--until", "2023-11-14T22:13:25Z"], [5, 4, 3]),
        (["--partition", "1", "--max", "2"], [299, 297]),
        (["--max", "1", "--", "-x"], []),
    ],
)
def test_all_conditions_narrow_a_search(
    penstock: Penstock, topic: str, conditions: list[str], expected: list[int]
) -> None:
    found = [json.loads(line) for line in penstock("search", topic, "--json", *conditions).splitlines()]
    assert [json.loads(each["value"])["number"] for each in found] == expected


def test_matches_are_shown_with_their_place_and_a_summary(
    penstock: Penstock, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(["search", topic, "Order 119", "--key", "k2", "--partition", "1"]) == 0
    shown = capfdbinary.readouterr()
    assert shown.out.decode().startswith("2023-11-14T22:15:19.000Z 1:59 k2 {")
    assert shown.err.decode().startswith("1 match in 150 messages (")
    assert run(["search", topic, "--filter", "json.nothing > 1", "--max-bytes", "1"]) == 0
    summary = capfdbinary.readouterr().err.decode()
    assert "0 matches" in summary
    assert "the filter could not be evaluated for 300 messages" in summary
    assert penstock("search", topic, "Order 3", "--max", "1", "--format", "{offset}\\n") == "19\n"


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        (["--regex", "("], "not a regular expression of RE2"),
        (["--json-path", "$.."], "is not a path"),
        (["--filter", "("], "the filter is not valid"),
        (["--since", "soon"], "'soon' is not a time"),
        (["--json", "--format", "{key}"], "several output formats"),
    ],
)
def test_wrong_condition_is_explained(
    penstock: Penstock, topic: str, conditions: list[str], reason: str
) -> None:
    assert reason in penstock.refused("search", topic, *conditions, code=2)


def test_unknown_topic_or_partition_is_refused(penstock: Penstock, topic: str) -> None:
    assert "there is no topic" in penstock.refused("search", f"{topic}-none", "x")
    assert "has no partition 9" in penstock.refused("search", topic, "x", "--partition", "9")
