"""Transactions with unmodified confluent-kafka (librdkafka, version 1 of the protocol)."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from confluent import create
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from samples import PATIENCE_S

from support.broker_process import Address, MakeTopic, StartBroker
from support.cluster_processes import BROKERS
from support.eventually import eventually


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def started_producer(bootstrap: str, transactional_id: str, **config: Any) -> Producer:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 1} | settings
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def transact(producer: Producer, topic: str, values: list[str], *, commit: bool = True) -> None:
    producer.begin_transaction()
    for place, value in enumerate(values):
        producer.produce(topic, value, partition=place % 2)
    if commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        assert producer.flush(PATIENCE_S) == 0
        producer.abort_transaction(PATIENCE_S)


def read_all(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """Read all records up to the end of both partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(2)])
    values: list[str] = []
    ends: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ends) < 2:
        assert time.monotonic() < deadline, f"no end of {topic} after {values}"
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is None:
            values.append(message.value().decode())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ends.add(message.partition())
    consumer.close()
    return sorted(values)


def test_committed_transactions_are_read_and_aborted_ones_are_not(
    broker: Address, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    producer = started_producer(broker.bootstrap, unique("t"))
    transact(producer, topic, ["a", "b", "c"])
    transact(producer, topic, ["x", "y"], commit=False)
    transact(producer, topic, ["d"])
    assert read_all(broker.bootstrap, topic) == ["a", "b", "c", "d"]
    assert read_all(broker.bootstrap, topic, "read_uncommitted") == ["a", "b", "c", "d", "x", "y"]


def test_open_transaction_is_not_read_and_holds_back_later_records(
    broker: Address, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    waiting = started_producer(broker.bootstrap, unique("t"))
    waiting.begin_transaction()
    waiting.produce(topic, "open", partition=0)
    assert waiting.flush(PATIENCE_S) == 0
    transact(started_producer(broker.bootstrap, unique("u")), topic, ["behind", "beside"])
    assert read_all(broker.bootstrap, topic) == ["beside"]
    waiting.commit_transaction(PATIENCE_S)
    eventually(lambda: read_all(broker.bootstrap, topic) == ["behind", "beside", "open"])


def test_zombie_is_fenced_and_its_records_are_aborted(broker: Address, make_topic: MakeTopic) -> None:
    topic, transactional_id = make_topic(2), unique("t")
    zombie = started_producer(broker.bootstrap, transactional_id)
    zombie.begin_transaction()
    zombie.produce(topic, "zombie", partition=0)
    assert zombie.flush(PATIENCE_S) == 0
    transact(started_producer(broker.bootstrap, transactional_id), topic, ["successor"])
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert read_all(broker.bootstrap, topic) == ["successor"]


def test_zombie_that_only_sends_is_fenced_too(broker: Address, make_topic: MakeTopic) -> None:
    topic, transactional_id = make_topic(2), unique("t")
    zombie = started_producer(broker.bootstrap, transactional_id)
    zombie.begin_transaction()
    zombie.produce(topic, "before", partition=0)
    assert zombie.flush(PATIENCE_S) == 0
    started_producer(broker.bootstrap, transactional_id)
    zombie.produce(topic, "after", partition=0)
    with pytest.raises(KafkaException) as caught:
        zombie.flush(PATIENCE_S)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert read_all(broker.bootstrap, topic) == []


def test_transaction_that_is_open_for_too_long_is_aborted(broker: Address, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    producer = started_producer(broker.bootstrap, unique("t"), transaction_timeout_ms=1_000)
    producer.begin_transaction()
    producer.produce(topic, "slow", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    transact(started_producer(broker.bootstrap, unique("u")), topic, ["quick"])
    eventually(lambda: read_all(broker.bootstrap, topic) == ["quick"])
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)


def copy(bootstrap: str, consumer: Consumer, producer: Producer, target: str, count: int) -> None:
    """Copy this many messages in one transaction, with their source offsets."""
    producer.begin_transaction()
    left = count
    deadline = time.monotonic() + PATIENCE_S
    while left:
        assert time.monotonic() < deadline, f"{left} messages did not come"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            producer.produce(target, f"{message.value().decode()}!", partition=message.partition())
            left -= 1
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), PATIENCE_S
    )


def test_consume_transform_produce_repeats_aborted_messages_alone(
    broker: Address, admin: AdminClient, make_topic: MakeTopic
) -> None:
    source, target = make_topic(2), unique("copies")
    create(admin, NewTopic(target, 2, BROKERS))
    transact(started_producer(broker.bootstrap, unique("s")), source, [str(number) for number in range(10)])
    group, transactional_id = unique("g"), unique("t")

    def started_consumer() -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([source])
        return consumer

    consumer = started_consumer()
    producer = started_producer(broker.bootstrap, transactional_id)
    copy(broker.bootstrap, consumer, producer, target, 10)
    assert producer.flush(PATIENCE_S) == 0
    producer.abort_transaction(PATIENCE_S)
    consumer.close()
    assert read_all(broker.bootstrap, target) == []

    consumer = started_consumer()
    copy(broker.bootstrap, consumer, producer, target, 10)
    producer.commit_transaction(PATIENCE_S)
    assert consumer.poll(0.5) is None
    partitions = [TopicPartition(source, index) for index in range(2)]
    assert all(found.offset > 0 for found in consumer.committed(partitions, PATIENCE_S))
    consumer.close()
    assert read_all(broker.bootstrap, target) == sorted(f"{number}!" for number in range(10))


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_open_transaction_survives_a_restart_of_all_brokers(start_broker: StartBroker, kill: bool) -> None:
    process = start_broker(["durability=auto"])
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    create(admin, NewTopic("orders", 2, BROKERS))
    producer = started_producer(process.bootstrap, "t")
    transact(producer, "orders", ["before"])
    producer.begin_transaction()
    producer.produce("orders", "first", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    process.kill() if kill else process.stop()
    process.start()
    producer.produce("orders", "second", partition=1)
    producer.commit_transaction(PATIENCE_S)
    eventually(lambda: read_all(process.bootstrap, "orders") == ["before", "first", "second"])
    transact(producer, "orders", ["after"])
    eventually(lambda: "after" in read_all(process.bootstrap, "orders"))
