"""`penstock queue` against a real broker."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from penstock.cli.main import run
from penstock.client.queue import Queue
from support.broker_process import Address
from support.eventually import eventually


@pytest.fixture
def cli(broker: Address, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)

    def command(*arguments: str, code: int = 0) -> str:
        assert run(("queue", *arguments)) == code
        shown = capfd.readouterr()
        return shown.out if code == 0 else shown.err

    return command


def test_queue_is_created_used_changed_and_deleted(cli: Any, topic_name: str) -> None:
    settings = ("--partitions", "1", "--lock", "20s", "--max-attempts", "4", "--back-off", "1s,10s")
    created = json.loads(cli("create", topic_name, *settings, "--json"))
    assert created == {
        "name": topic_name,
        "topic": topic_name,
        "lock_s": 20.0,
        "max_attempts": 4,
        "back_off": "1s,10s",
        "dead_letter": "",
        "of": "",
        "filter": "",
        "order": "none",
        "priorities": False,
        "priority_share": 0.0,
        "max_length": 0,
        "max_length_policy": "refuse",
    }
    assert topic_name in cli("list")
    cli("send", topic_name, "one", "two", "--key", "k")
    cli("send", topic_name, '{"id": 7}', "--json-value")
    assert cli("peek", topic_name, "--max", "2").splitlines() == ["one", "two"]
    assert cli("receive", topic_name).strip() == "one"
    assert cli("receive", topic_name, "--max", "5").splitlines() == ["two", '{"id": 7}']
    assert "no message" in cli("receive", topic_name, code=1)
    cli("alter", topic_name, "--back-off", "exponential:1s:1m")
    cli("send", topic_name, "three")
    described = json.loads(cli("describe", topic_name, "--json"))
    assert (described["depth"], described["back_off"]) == (1, "exponential:1s:1m")
    assert "depth 1" in cli("describe", topic_name)
    assert described["retain"] == "2w"
    cli("alter", topic_name, "--retain", "acknowledged")
    assert "retain acknowledged" in cli("describe", topic_name)
    cli("alter", topic_name, "--retain", "36h")
    assert "retain 36h" in cli("describe", topic_name)
    assert "purged 1 messages" in cli("purge", topic_name, "--yes")
    assert json.loads(cli("describe", topic_name, "--json"))["depth"] == 0
    cli("delete", topic_name, "--yes")
    assert "there is no queue" in cli("describe", topic_name, code=1)


def test_sent_messages_have_a_delay_a_lifetime_and_a_route(cli: Any, topic_name: str) -> None:
    cli("create", topic_name, "--partitions", "1", "--priorities")
    cli("create", f"{topic_name}-eu", "--of", topic_name, "--route", "invoice.*.eu")
    cli("send", topic_name, "expired", "--ttl", "1ms")
    cli("send", topic_name, "later", "--delay", "500ms", "--priority", "5")
    cli("send", topic_name, "now", "--route", "invoice.paid.eu", "--ttl", "1h")
    assert cli("receive", f"{topic_name}-eu", "--wait", "30").strip() == "now"
    assert cli("receive", topic_name, "--wait", "30").strip() == "now"
    assert cli("receive", topic_name, "--wait", "30").strip() == "later"
    assert "--delay: '-1s' is not a duration" in cli("send", topic_name, "x", "--delay", "-1s", code=2)


def test_refused_queue_leaves_no_topic(cli: Any, topic_name: str) -> None:
    for wrong in (("--lock", "0s"), ("--lock", "300d")):
        cli("create", topic_name, *wrong, "--dead-letter", f"{topic_name}-dead", code=1)
    cli("create", topic_name, "--dead-letter", f"{topic_name}-dead")


def test_queue_delivers_by_priority_and_key(cli: Any, topic_name: str) -> None:
    cli("create", topic_name, "--partitions", "1", "--priorities", "--priority-share", "0.1")
    cli("send", topic_name, "low")
    cli("send", topic_name, "high", "--priority", "9")
    assert cli("receive", topic_name, "--max", "2").splitlines() == ["high", "low"]
    cli("alter", topic_name, "--order", "key", "--no-priorities")
    described = json.loads(cli("describe", topic_name, "--json"))
    assert (described["order"], described["priorities"], described["priority_share"]) == ("key", False, 0.1)
    assert "order by key" in cli("describe", topic_name)
    cli("send", topic_name, "first", "second", "--key", "k")
    with Queue(topic_name, bootstrap=os.environ["PENSTOCK_BOOTSTRAP"]) as queue:
        held = queue.receive(wait_s=30)
        assert "no message" in cli("receive", topic_name, code=1)
        held.accept()
    assert cli("receive", topic_name, "--wait", "30").strip() == "second"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("create", "x", "--back-off", ",".join(["1s"] * 1_000)), 2, "1000 delays"),
        (("create", "x", "--back-off", "-1s"), 2, "is not a duration"),
        (("create", "x", "--lock", "soon"), 2, "is not a duration"),
        (("create", "x", "--from-end"), 2, "--of"),
        (("create", "x", "--of", "missing-topic"), 1, "missing-topic"),
        (("create", "x", "--filter", "size > 1"), 2, "--of"),
        (("create", "x", "--route", "a.*"), 2, "--of"),
        (("create", "x", "--of", "missing-topic", "--filter", " "), 2, "the filter is empty"),
        (("create", "x", "--of", "missing-topic", "--filter", "size > 1"), 1, "missing-topic"),
        (("alter", "x"), 2, "--lock"),
        (("create", "x", "--order", "fifo"), 2, "fifo"),
        (("create", "x", "--priority-share", "0.6"), 2, "0.6"),
        (("send", "x", "a", "--priority", "10"), 2, "10"),
        (("send", "x", "a", "--priority", "high"), 2, "high"),
        (("send", "missing-queue", "a"), 1, "there is no queue"),
        (("receive", "missing-queue"), 1, "there is no queue"),
        (("send", "x", "{", "--json-value"), 2, "not JSON"),
    ],
)
def test_wrong_input_is_reported(cli: Any, arguments: tuple[str, ...], code: int, text: str) -> None:
    assert text in cli(*arguments, code=code)


def test_queues_with_filters_share_a_topic(cli: Any, topic_name: str) -> None:
    large, routed = f"{topic_name}-large", f"{topic_name}-routed"
    cli("create", topic_name, "--partitions", "1")
    cli("create", large, "--of", topic_name, "--filter", "json.total > 10")
    shown = json.loads(
        cli("create", routed, "--of", topic_name, "--route", "invoice.*.eu", "--filter", "size > 0", "--json")
    )
    assert (shown["of"], shown["filter"]) == (topic_name, '(size > 0) && route("invoice.*.eu")')
    cli("send", large, '{"total": 5}', '{"total": 50}', "--json-value")
    with Queue(topic_name) as queue:
        queue.send("eu", headers={"penstock-route": "invoice.paid.eu"})
        queue.send("us", headers={"penstock-route": "invoice.paid.us"})
    assert cli("receive", large, "--max", "9", "--wait", "20").splitlines() == ['{"total": 50}']
    assert cli("peek", routed).splitlines() == ["eu"]
    assert cli("receive", routed, "--max", "9", "--wait", "20").splitlines() == ["eu"]
    assert len(cli("receive", topic_name, "--max", "9", "--wait", "20").splitlines()) == 4
    described = json.loads(cli("describe", large, "--json"))
    assert (described["filter"], described["topic"]) == ("json.total > 10", large)
    assert described["depth_is_upper_bound"] is True
    assert json.loads(cli("describe", topic_name, "--json"))["depth_is_upper_bound"] is False
    assert "json.total > 10" in cli("describe", large)
    assert "invoice.*.eu" in cli("list")
    cli("alter", large, "--filter", "json.total < 10")
    cli("send", large, '{"total": 7}', '{"total": 70}', "--json-value")
    assert cli("receive", large, "--max", "9", "--wait", "20").splitlines() == ['{"total": 7}']
    assert "without a filter" in cli("alter", topic_name, "--filter", "true", code=1)
    for queue_name in (large, routed):
        cli("delete", queue_name, "--yes")
    assert "there is no queue" in cli("describe", large, code=1)


def test_wrong_filter_leaves_nothing_behind(cli: Any, topic_name: str) -> None:
    cli("create", topic_name)
    part = f"{topic_name}-part"
    assert "view.filter" in cli("create", part, "--of", topic_name, "--filter", "nothing > 1", code=1)
    assert part not in cli("list")
    cli("create", part)  # the name is free


def test_queue_with_a_filter_needs_a_name_of_its_own(cli: Any, topic_name: str) -> None:
    cli("create", topic_name)
    text = cli("create", f"{topic_name}-2", "--of", topic_name, "--filter", "size > 1")
    assert "created queue" in text
    refused = cli("create", f"{topic_name}-2", "--of", topic_name, "--filter", "size > 2", code=1)
    assert "already" in refused
    cli("delete", topic_name, "--yes", "--keep-topic")
    refused = cli("create", topic_name, "--of", topic_name, "--filter", "size > 2", code=1)
    assert "a name that no topic has" in refused


def test_dead_letters_are_listed_redriven_and_purged(
    broker: Address, cli: Any, capfd: pytest.CaptureFixture[str], topic_name: str
) -> None:
    def dead(*arguments: str, code: int = 0) -> str:
        assert run(("dead-letters", *arguments)) == code
        shown = capfd.readouterr()
        return shown.out if code == 0 else shown.err

    cli("create", topic_name, "--partitions", "1", "--dead-letter", f"{topic_name}-dead")
    cli("send", topic_name, "one", "two")
    with Queue(topic_name, bootstrap=broker.bootstrap) as queue:
        for _ in range(2):
            queue.receive(wait_s=20).reject("not wanted")
    eventually(lambda: len(json.loads(dead("list", topic_name, "--json"))) == 2)
    assert "not wanted" in dead("list", topic_name)
    shown = json.loads(dead("show", topic_name, "0-0"))
    assert (shown["value"], shown["reason"]) == ("one", "rejected")
    assert "no dead letter" in dead("show", topic_name, "9-9", code=1)
    assert "would redrive 2" in dead("redrive", topic_name, "--dry-run")
    described = json.loads(cli("describe", topic_name, "--json"))
    assert described["dead_letters"] == {"rejected": 2, "attempts": 0, "expired": 0, "overflow": 0}
    assert "dead letters: rejected 2" in cli("describe", topic_name)
    assert "invalid" in dead("redrive", topic_name, "--filter", "no such(", code=2)
    assert "redrove 2" in dead("redrive", topic_name, "--rate", "100")
    assert "redrove 0" in dead("redrive", topic_name)
    assert sorted(cli("receive", topic_name, "--max", "5", "--wait", "20").splitlines()) == ["one", "two"]
    assert "purged 0" in dead("purge", topic_name, "--yes")


def test_full_queue_refuses_messages(cli: Any, topic_name: str) -> None:
    cli("create", topic_name, "--partitions", "1", "--max-length", "2")
    cli("send", topic_name, "one")
    cli("send", topic_name, "two")
    assert "full" in cli("send", topic_name, "three", code=1)
    assert cli("receive", topic_name).strip() == "one"
    cli("send", topic_name, "three")
    assert json.loads(cli("describe", topic_name, "--json"))["max_length"] == 2


def test_long_queue_gives_up_its_oldest_messages(cli: Any, topic_name: str) -> None:
    policy = ("--max-length", "2", "--max-length-policy", "dead-letter")
    assert "dead-letter topic" in cli("create", topic_name, *policy, code=1)
    cli("create", topic_name, "--partitions", "1", *policy, "--dead-letter", f"{topic_name}-dead")
    cli("send", topic_name, "one", "two", "three")

    def depth() -> int:
        return int(json.loads(cli("describe", topic_name, "--json"))["depth"])

    eventually(lambda: depth() == 2)
    assert cli("receive", topic_name, "--max", "5").splitlines() == ["two", "three"]
    assert "dead-letter topic" in cli("alter", topic_name, "--dead-letter", "", code=1)
