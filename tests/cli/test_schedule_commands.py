"""`penstock schedule` against a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import run
from support.broker_process import Address
from support.eventually import eventually


@pytest.fixture
def cli(broker: Address, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)

    def command(*arguments: str, code: int = 0) -> str:
        assert run(arguments) == code
        shown = capfd.readouterr()
        return shown.out if code == 0 else shown.err

    return command


def messages(cli: Any, topic: str) -> list[Any]:
    shown = cli("consume", topic, "--from", "beginning", "--json")
    return [json.loads(line) for line in shown.splitlines()]


@pytest.fixture
def made(cli: Any, topic_name: str, tmp_path: Path) -> str:
    """Schedule with the name of its topic."""
    cli("topic", "create", topic_name, "--partitions", "1")
    (tmp_path / "value").write_bytes(b"from a file")
    times = ("--cron", "0 9 * * MON-FRI", "--timezone", "Europe/Berlin")
    message = ("--key", "k", "--value-file", str(tmp_path / "value"), "--header", "a=b")
    shown = cli("schedule", "create", topic_name, *times, "--topic", topic_name, *message)
    assert "fires next at" in shown
    return topic_name


def test_description_has_definition_message_and_five_times(cli: Any, made: str) -> None:
    shown = json.loads(cli("schedule", "describe", made, "--json"))
    expected = {
        "cron": "0 9 * * MON-FRI",
        "timezone": "Europe/Berlin",
        "topic": made,
        "catch_up": "one",
        "key": "k",
        "value": "from a file",
        "headers": [{"name": "a", "value": "b"}],
    }
    assert shown | expected == shown
    assert len(shown["next_times"]) == 5
    assert cli("schedule", "describe", made).count("09:00:00+0") == 5


def test_schedule_is_run_paused_resumed_and_deleted(cli: Any, made: str) -> None:
    run_at = json.loads(cli("schedule", "run", made, "--json"))["scheduled_for_ms"]
    (message,) = eventually(lambda: messages(cli, made))
    headers = {each["name"]: each["value"] for each in message["headers"]}
    assert headers == {"a": "b", "penstock-schedule": made, "penstock-scheduled-for": str(run_at)}
    assert json.loads(cli("schedule", "pause", made, "--json"))["paused"]
    assert "paused" in cli("schedule", "list")
    assert not json.loads(cli("schedule", "resume", made, "--json"))["paused"]
    assert made in [each["name"] for each in json.loads(cli("schedule", "list", "--json"))]
    assert json.loads(cli("schedule", "delete", made, "--json")) == {"deleted": made}
    assert "penstock schedule list" in cli("schedule", "describe", made, code=1)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--cron", "0 0 30 2 *"), 1, "0 0 30 2 *"),
        (("--cron", "@every 0s"), 1, "one second"),
        (("--cron", "@daily", "--timezone", "Mars/Base"), 1, "Mars/Base"),
        (("--cron", "@daily", "--value", "a", "--value-file", "b"), 2, "--value-file"),
        (("--cron", "@daily", "--value-file", "/does/not/exist"), 1, "cannot read"),
        (("--cron", "@daily", "--header", "a"), 2, "NAME=VALUE"),
        (("--cron", "@daily", "--catch-up", "some"), 2, "catch-up"),
        (("--cron", "@daily", "--topic", "no-such-topic"), 1, "penstock topic create"),
    ],
)
def test_bad_schedule_is_refused_and_leaves_nothing(
    cli: Any, topic_name: str, arguments: tuple[str, ...], code: int, text: str
) -> None:
    cli("topic", "create", topic_name)
    topic = () if "--topic" in arguments else ("--topic", topic_name)
    assert text in cli("schedule", "create", topic_name, *topic, *arguments, code=code)
    assert topic_name not in [each["name"] for each in json.loads(cli("schedule", "list", "--json"))]
