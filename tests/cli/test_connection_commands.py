"""`penstock connection` against a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from test_group_commands import PATIENCE_S, Penstock

from support.broker_process import Address
from support.eventually import eventually


@pytest.fixture
def penstock(
    broker: Address, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Penstock:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)
    return Penstock(capfdbinary)


def test_connection_of_a_client_is_listed_and_closed(
    penstock: Penstock, broker: Address, topic_name: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": topic_name, "log_level": 0})
    producer.list_topics(timeout=PATIENCE_S)

    def ids() -> list[str]:
        listed = penstock.json("connection", "list")
        return [each["id"] for each in listed if each["client_id"] == topic_name]

    eventually(lambda: bool(ids()), within_s=PATIENCE_S)
    assert topic_name in penstock("connection", "list", "--brokers")
    closed = ids()[0]
    assert penstock("connection", "close", closed, "--yes") == f"closed connection {closed}\n"
    eventually(lambda: closed not in ids(), within_s=PATIENCE_S)


@pytest.mark.parametrize("connection", ["1-999999999", "999-1", "x", "1-", "-1", "²-1"])
def test_connection_that_does_not_exist_is_refused(penstock: Penstock, connection: str) -> None:
    refused = penstock.refused("connection", "close", "--yes", "--", connection)
    assert "there is no connection" in refused
