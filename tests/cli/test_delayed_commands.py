"""`penstock delayed` and delays of `penstock produce` against a real broker, with wrong input too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import run
from support.broker_process import Address


@pytest.fixture
def cli(broker: Address, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)

    def command(*arguments: str, code: int = 0) -> str:
        assert run(arguments) == code, capfd.readouterr().err
        shown = capfd.readouterr()
        return shown.out if code == 0 else shown.err

    return command


@pytest.fixture
def topic(cli: Any, topic_name: str) -> str:
    cli("topic", "create", topic_name, "--partitions", "1", "--set", "delivery.delay=true")
    return topic_name


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines"
    path.write_text("later\n")
    return str(path)


def test_pending_messages_are_listed_shown_and_cancelled(cli: Any, topic: str, lines: str) -> None:
    for delay in ("2h", "1h"):
        cli("produce", topic, lines, "--delay", delay)
    assert cli("delayed", "count", topic).strip() == "2"
    first = json.loads(cli("delayed", "list", topic, "--limit", "1", "--json"))
    assert (first["count"], first["messages"][0]["message"]) == (2, "0-1")
    rest = json.loads(cli("delayed", "list", topic, "--after", first["next"], "--json"))
    assert [each["message"] for each in rest["messages"]] == ["0-0"]
    assert json.loads(cli("delayed", "show", topic, "0-0", "--json"))["value"] == "later"
    assert json.loads(cli("delayed", "cancel", topic, "0-0", "--json"))["cancelled"] == "0-0"
    assert "is not pending" in cli("delayed", "cancel", topic, "0-0", code=1)
    assert json.loads(cli("delayed", "count", topic, "--json")) == {"topic": topic, "count": 1}
    assert cli("consume", topic) == ""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--delay", "1h", "--deliver-at", "2030-01-01T00:00:00Z"], "--deliver-at"),
        (["--delay", "soon"], "soon"),
        (["--delay", "-5s"], "-5s"),
        (["--deliver-at", "2030-01-01T00:00:00"], "offset"),
        (["--deliver-at", "tomorrow"], "tomorrow"),
        (["--delay", "400d"], "delivery.delay.max.ms"),
        (["--header", "penstock-delay-ms=soon"], "at most one of a delay"),
        (["--header", "penstock-delay-ms=5", "--delay", "1h"], "at most one of a delay"),
    ],
)
def test_wrong_delays_are_refused_and_nothing_is_stored(
    broker: Address, topic: str, lines: str, cli: Any, options: list[str], text: str
) -> None:
    code = run(("produce", topic, lines, *options, "-b", broker.bootstrap))
    assert code in (1, 2)
    assert text in cli("produce", topic, lines, *options, code=code)
    assert cli("delayed", "count", topic).strip() == "0"
    assert cli("consume", topic) == ""


def test_delays_are_refused_where_they_would_be_ignored(cli: Any, topic_name: str, lines: str) -> None:
    cli("topic", "create", topic_name, "--partitions", "1")
    assert "delivery.delay" in cli("produce", topic_name, lines, "--delay", "1h", code=1)
    assert cli("consume", topic_name) == ""
    for command in (["list"], ["count"], ["show", "0-0"], ["cancel", "0-0"]):
        verb, *rest = command
        assert "delivery.delay" in cli("delayed", verb, topic_name, *rest, code=1)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["show", "0-99"], 1, "0-99"),
        (["show", "7-0"], 1, "1 partition"),
        (["show", "x"], 2, "PARTITION-OFFSET"),
        (["cancel", "0-99"], 1, "is not pending"),
        (["cancel", "-1"], 2, ""),
        (["list", "--after", "x"], 2, "position"),
        (["list", "--partition", "7"], 1, "partition"),
    ],
)
def test_unknown_messages_are_refused(
    cli: Any, topic: str, arguments: list[str], code: int, text: str
) -> None:
    verb, *rest = arguments
    assert text in cli("delayed", verb, topic, *rest, code=code)


def test_an_unknown_topic_is_named(cli: Any, topic_name: str) -> None:
    assert topic_name in cli("delayed", "list", topic_name, code=1)
