"""`penstock transaction` against a real broker, on each event loop."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaException, Producer
from test_group_commands import PATIENCE_S, Penstock

from penstock.internal_client.transactions import TransactionCalls, TransactionSummary
from support.broker_process import Address, BrokerProcess, StartBroker


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
    return _open(broker.bootstrap, penstock, topic_name, transactional_id)


def _open(bootstrap: str, penstock: Penstock, topic_name: str, transactional_id: str) -> Producer:
    """A producer with an open transaction that wrote to both partitions."""
    penstock("topic", "create", topic_name, "--partitions", "2")
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
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
    listed = TransactionCalls.all

    async def with_one_more(self: TransactionCalls, states: Sequence[str] = ()) -> list[TransactionSummary]:
        forgotten = TransactionSummary(f"{transactional_id}-forgotten", 1, "Ongoing")
        return [forgotten, *await listed(self, states)]

    monkeypatch.setattr(TransactionCalls, "all", with_one_more)
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


def test_unknown_transactional_id_is_reported(penstock: Penstock) -> None:
    assert "no transactional id" in penstock.refused("transaction", "describe", "nobody's")


def lose_coordinators(broker: BrokerProcess) -> None:
    """Lose only the logs of `__transaction_state`, as after a disk failure."""
    broker.kill()
    directories = list((broker.data_dir / "logs").glob("__transaction_state-*"))
    assert directories
    for directory in directories:
        shutil.rmtree(directory)
    broker.start()


def test_transaction_whose_coordinator_has_lost_it_is_found_and_aborted(
    start_broker: StartBroker,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    topic_name: str,
    transactional_id: str,
) -> None:
    broker = start_broker()
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)
    penstock = Penstock(capfdbinary)
    producer = _open(broker.bootstrap, penstock, topic_name, transactional_id)
    assert penstock("transaction", "find-hanging") == "There are no hanging transactions.\n"
    (known,) = penstock.json("transaction", "list", "--open")
    place = ["--topic", topic_name, "--partition", "1", "--producer-id", str(known["producer_id"])]
    assert "Its coordinator knows the transaction" in penstock.refused(
        "transaction", "abort", *place, "--yes"
    )
    del producer
    lose_coordinators(broker)
    found = penstock.json("transaction", "find-hanging", "--topic", topic_name)
    assert [(each["partition"], each["producer_id"]) for each in found] == [
        (0, known["producer_id"]),
        (1, known["producer_id"]),
    ]
    assert str(known["producer_id"]) in penstock("transaction", "find-hanging")
    assert "is aborted" in penstock("transaction", "abort", *place, "--yes")
    (left,) = penstock.json("transaction", "find-hanging")
    assert left["partition"] == 0
    assert "has no open transaction" in penstock.refused("transaction", "abort", *place, "--yes")


@pytest.mark.parametrize("arguments", [(), ("mine", "--topic", "a"), ("--topic", "a", "--partition", "0")])
def test_transaction_to_abort_is_named_in_one_way(penstock: Penstock, arguments: tuple[str, ...]) -> None:
    assert "Give a transactional id" in penstock.refused("transaction", "abort", *arguments, code=2)
