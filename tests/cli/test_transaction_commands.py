"""`penstock transaction` against a real broker, on each event loop."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pytest
from confluent_kafka import KafkaException, Producer
from test_group_commands import PATIENCE_S, Penstock

from broker_process import Address
from penstock.cli import transaction
from penstock.net.routes import Routes

pytestmark = pytest.mark.process


@pytest.fixture
def penstock(
    broker: Address, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Penstock:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)
    return Penstock(capfdbinary)


@pytest.fixture
def transactional_id() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def producer(broker: Address, penstock: Penstock, topic_name: str, transactional_id: str) -> Producer:
    """With an open transaction that has written to both partitions."""
    penstock("topic", "create", topic_name, "--partitions", "2")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for index in range(2):
        producer.produce(topic_name, "value", partition=index)
    assert producer.flush(PATIENCE_S) == 0
    return producer


def test_id_that_is_forgotten_while_they_are_listed_is_left_out(
    penstock: Penstock, producer: Producer, transactional_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = transaction.transactional_ids

    async def with_one_more(routes: Routes, states: Iterable[str] = ()) -> list[str]:
        return [f"{transactional_id}-forgotten", *await listed(routes, states)]

    monkeypatch.setattr(transaction, "transactional_ids", with_one_more)
    shown = [each["transactional_id"] for each in penstock.json("transaction", "list")]
    assert transactional_id in shown
    assert f"{transactional_id}-forgotten" not in shown


def test_open_transaction_is_listed_and_described(
    penstock: Penstock, producer: Producer, topic_name: str, transactional_id: str
) -> None:
    listed = {each["transactional_id"]: each for each in penstock.json("transaction", "list", "--open")}
    assert listed[transactional_id]["state"] == "Ongoing"
    assert listed[transactional_id]["partitions"] == {topic_name: [0, 1]}
    assert not listed[transactional_id]["held"]
    assert penstock.json("transaction", "describe", transactional_id) == listed[transactional_id]
    assert transactional_id in penstock("transaction", "list")
    shown = penstock("transaction", "describe", transactional_id)
    assert f"{topic_name} 0,1" in shown
    assert "60 s" in shown
    producer.commit_transaction(PATIENCE_S)
    open_ones = penstock.json("transaction", "list", "--open")
    assert transactional_id not in {each["transactional_id"] for each in open_ones}
    assert penstock.json("transaction", "describe", transactional_id)["state"] in (
        "PrepareCommit",
        "CompleteCommit",
    )


def test_open_transaction_is_aborted_and_its_producer_fenced(
    penstock: Penstock, producer: Producer, transactional_id: str
) -> None:
    assert "aborted" in penstock("transaction", "abort", transactional_id, "--yes")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
    assert "no open transaction" in penstock.refused("transaction", "abort", transactional_id, "--yes")


def test_id_that_nobody_has_is_not_there(penstock: Penstock) -> None:
    assert "no transactional id" in penstock.refused("transaction", "describe", "nobody's")
