"""`penstock retry-policy` against a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cli.main import run
from penstock.client.consumer import Consumer
from penstock.client.producer import Producer
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
        (("--back-off", "-1s"), 2, "is not a duration"),
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


def test_dead_letters_of_a_group_return_to_its_retry_topic(
    cli: Any, broker: Address, topic_name: str
) -> None:
    cli("topic", "create", topic_name, "--partitions", "1")
    cli("retry-policy", "set", topic_name, "--max-attempts", "2", "--back-off", "10ms", "--partitions", "1")
    with Producer(broker.bootstrap) as producer:
        producer.send(topic_name, "bad", key="k")
    with Consumer(topic_name, group=topic_name, bootstrap=broker.bootstrap, idle_timeout_s=30) as consumer:
        for _ in range(2):
            consumer.retry(next(consumer), "no answer")
        consumer.commit()
        (letter,) = json.loads(cli("dead-letters", "list", topic_name, "--json"))
        assert (letter["value"], letter["reason"], letter["detail"]) == ("bad", "attempts", "no answer")
        assert "redrove 1" in cli("dead-letters", "redrive", topic_name)
        assert "redrove 0" in cli("dead-letters", "redrive", topic_name)
        again = next(consumer)
        assert (again.topic, again.value, again.attempt) == (f"{topic_name}.retry", b"bad", 2)
    assert "neither a queue" in cli("dead-letters", "list", "unknown", code=1)
