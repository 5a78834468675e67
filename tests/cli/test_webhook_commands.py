"""`penstock webhook` against a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.cli.main import run
from penstock.client.queue import Queue
from support.broker_process import BrokerProcess, StartBroker
from support.eventually import eventually
from support.webhook_receivers import ReceiverServer, thread_receiver

ALLOWED = "webhook.allow.private.addresses=127.0.0.0/8"


@pytest.fixture
def own_broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker([ALLOWED])


@pytest.fixture
def cli(own_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", own_broker.bootstrap)

    def command(*arguments: str, code: int = 0, verb: str = "webhook") -> str:
        assert run((verb, *arguments)) == code
        shown = capfd.readouterr()
        return shown.out if code == 0 else shown.err

    return command


@pytest.fixture
def receiver() -> Iterator[ReceiverServer]:
    with thread_receiver() as server:
        yield server


def test_webhook_is_created_used_paused_and_deleted(cli: Any, receiver: ReceiverServer) -> None:
    cli("create", "orders", "--partitions", "1", verb="queue")
    assert json.loads(cli("list", "--json")) == []
    shown = cli("create", "hook", "--queue", "orders", "--url", receiver.url, "--timeout", "5s")
    assert "created webhook hook of queue orders" in shown
    assert "secret whsec_" in shown
    with Queue("orders") as queue:
        queue.send({"id": 7})
        eventually(lambda: [each.body for each in receiver.received] == [b'{"id":7}'])
        assert receiver.received[0].headers["content-type"] == "application/json"
        described = json.loads(cli("describe", "hook", "--json"))
        assert (described["timeout_ms"], described["concurrency"], described["format"]) == (5_000, 8, "raw")
        assert "secret" not in described
        assert json.loads(cli("pause", "hook", "--json"))["paused"] is True
        assert "paused" in cli("list")
        assert "paused" in cli("describe", "hook")
        cli("resume", "hook")
        queue.send("more")
        eventually(lambda: len(receiver.received) == 2)
    assert "answered 200" in cli("test", "hook")
    altered = json.loads(cli("alter", "hook", "--timeout", "7s", "--concurrency", "3", "--json"))
    assert (altered["timeout_ms"], altered["concurrency"], altered["url"]) == (7_000, 3, receiver.url)
    assert "nothing to change" in cli("alter", "hook", code=2)
    assert "is not a duration" in cli("alter", "hook", "--timeout", "soon", code=2)
    receiver.status = 500
    assert "answered 500" in cli("test", "hook", code=1)
    assert json.loads(cli("rotate-secret", "hook", "--json"))["secrets"] == 2
    cli("delete", "hook", "--yes")
    assert "there is no webhook" in cli("describe", "hook", code=1)


def test_webhook_of_a_topic_filters_and_keeps_the_topic(cli: Any, receiver: ReceiverServer) -> None:
    cli("create", "events", "--partitions", "1", verb="topic")
    created = json.loads(
        cli(
            *("create", "big", "--topic", "events", "--filter", "json.total > 50", "--url", receiver.url),
            *("--format", "cloudevent", "--secret", "my secret", "--json"),
        )
    )
    assert (created["queue"], created["secret"]) == ("webhook-big", None)
    assert "big" in cli("list")
    cli("delete", "big", "--yes")
    assert "events" in cli("list", verb="topic")
    assert json.loads(cli("list", "--json", verb="queue")) == []


WRONG: list[tuple[tuple[str, ...], int, str]] = [
    (("--queue", "q", "--topic", "t", "--url", "http://127.0.0.1/"), 2, "not both"),
    (("--url", "http://127.0.0.1/"), 2, "not both"),
    (("--queue", "q", "--filter", "true", "--url", "http://127.0.0.1/"), 2, "--topic"),
    (("--queue", "q", "--url", "http://127.0.0.1/", "--timeout", "soon"), 2, "is not a duration"),
    (("--queue", "q", "--url", "http://127.0.0.1/", "--format", "xml"), 2, "raw, cloudevent"),
    (("--queue", "q", "--url", "file:///etc/passwd"), 1, "scheme"),
    (("--queue", "q", "--url", "http://a:b@example.com/"), 1, "credentials"),
    (("--queue", "q", "--url", "http://192.168.0.1/"), 1, "private"),
    (("--queue", "nowhere", "--url", "http://127.0.0.1/"), 1, "no queue"),
    (("--queue", "q", "--url", "http://127.0.0.1/", "--concurrency", "0"), 1, "concurrency"),
]


def test_wrong_arguments_get_a_reason(cli: Any) -> None:
    for arguments, code, text in WRONG:
        assert text in cli("create", "hook", *arguments, code=code), arguments
