"""`penstock retry-policy` against a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cli.main import run
from support.broker_process import Address


@pytest.fixture
def cli(broker: Address, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)

    def command(*arguments: str, code: int = 0) -> str:
        assert run(arguments) == code
        shown = capfd.readouterr()
        return shown.out if code == 0 else shown.err

    return command


def test_policy_is_set_changed_shown_and_deleted(cli: Any, topic_name: str) -> None:
    group = f"{topic_name} / é"
    letters = f"{topic_name}-letters"
    first = json.loads(
        cli("retry-policy", "set", group, "--max-attempts", "3", "--back-off", "1s,2s", "--json")
    )
    assert (first["max_attempts"], first["back_off"]) == (3, "1s,2s")
    assert first["topic"] == f"{topic_name}-x20-x2f-x20-xc3-xa9.retry"
    changed = json.loads(cli("retry-policy", "set", group, "--dead-letter", letters, "--json"))
    assert changed == {**first, "max_attempts": 5, "back_off": "exponential:1s:10m", "dead_letter": letters}
    assert json.loads(cli("retry-policy", "show", group, "--json")) == changed
    topics = cli("topic", "list")
    assert letters in topics
    assert first["topic"] in topics
    cli("retry-policy", "delete", group)
    assert "no retry policy" in cli("retry-policy", "show", group, code=1)
    assert "no retry policy" in cli("retry-policy", "delete", group, code=1)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--back-off", ",".join(["1s"] * 1_000)), 2, "1000 delays"),
        (("--back-off", "-1s"), 2, "not a time"),
        (("--max-attempts", "1"), 2, "max-attempts"),
        (("--dead-letter", "__consumer_offsets"), 1, "__consumer_offsets"),
        (("--dead-letter", "GROUP.retry"), 1, "retry topic itself"),
    ],
)
def test_bad_policy_is_refused_and_leaves_nothing(
    cli: Any, topic_name: str, arguments: tuple[str, ...], code: int, text: str
) -> None:
    given = [each.replace("GROUP", topic_name) for each in arguments]
    assert text in cli("retry-policy", "set", topic_name, *given, code=code)
    assert f"{topic_name}.retry" not in cli("topic", "list")


def test_topic_of_another_purpose_is_not_taken_over(cli: Any, topic_name: str) -> None:
    cli("topic", "create", f"{topic_name}.retry")
    assert "delivery.delay" in cli("retry-policy", "set", topic_name, code=1)
