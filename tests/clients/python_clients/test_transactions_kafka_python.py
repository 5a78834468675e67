"""Transactions with unmodified kafka-python: newer request versions than other clients."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from kafka.admin import NewTopic
from kafka.errors import KafkaError
from samples import PATIENCE_S

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from support.broker_process import Address
from support.cluster_processes import BROKERS


@pytest.fixture
def topic(broker: Address, topic_name: str) -> Iterator[str]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics(
        [NewTopic(topic_name, 2, BROKERS), NewTopic(f"{topic_name}-copies", 2, BROKERS)],
        wait_for_metadata=True,
    )
    yield topic_name
    admin.close()


def started_producer(broker: Address, transactional_id: str | None = None) -> KafkaProducer:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=transactional_id or f"t-{uuid.uuid4().hex[:8]}"
    )
    producer.init_transactions()
    return producer


def transact(producer: KafkaProducer, topic: str, values: list[bytes], *, commit: bool = True) -> None:
    producer.begin_transaction()
    for place, value in enumerate(values):
        producer.send(topic, value, partition=place % 2)
    producer.flush(PATIENCE_S)
    producer.commit_transaction() if commit else producer.abort_transaction()


def read_all(broker: Address, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Read all records up to the end of both partitions."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=None, isolation_level=isolation, fetch_max_wait_ms=50
    )
    partitions = [TopicPartition(topic, index) for index in range(2)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    ends = consumer.end_offsets(partitions)
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while any(consumer.position(each) < ends[each] for each in partitions):
        assert time.monotonic() < deadline, f"no end of {topic} after {values}"
        for records in consumer.poll(timeout_ms=100).values():
            values += [record.value for record in records]
    consumer.close()
    return sorted(values)


def test_committed_transactions_are_read_and_aborted_ones_are_not(broker: Address, topic: str) -> None:
    producer = started_producer(broker)
    transact(producer, topic, [b"a", b"b", b"c"])
    transact(producer, topic, [b"x"], commit=False)
    transact(producer, topic, [b"d"])
    producer.close()
    assert read_all(broker, topic) == [b"a", b"b", b"c", b"d"]
    assert read_all(broker, topic, "read_uncommitted") == [b"a", b"b", b"c", b"d", b"x"]


def test_zombie_is_fenced(broker: Address, topic: str) -> None:
    transactional_id = f"t-{uuid.uuid4().hex[:8]}"
    zombie = started_producer(broker, transactional_id)
    zombie.begin_transaction()
    zombie.send(topic, b"zombie", partition=0).get(PATIENCE_S)
    successor = started_producer(broker, transactional_id)
    transact(successor, topic, [b"successor"])
    with pytest.raises(KafkaError):
        zombie.commit_transaction()
    zombie.close(timeout=1)
    successor.close()
    assert read_all(broker, topic) == [b"successor"]


def test_kafka_python_consume_transform_produce_writes_each_message_once(broker: Address, topic: str) -> None:
    producer = started_producer(broker)
    transact(producer, topic, [str(number).encode() for number in range(10)])
    group = f"g-{uuid.uuid4().hex[:8]}"
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    copied = 0
    deadline = time.monotonic() + PATIENCE_S
    while copied < 10:
        assert time.monotonic() < deadline
        batch = consumer.poll(timeout_ms=200)
        if not batch:
            continue
        producer.begin_transaction()
        for partition, records in batch.items():
            for record in records:
                producer.send(f"{topic}-copies", record.value + b"!", partition=partition.partition)
                copied += 1
        offsets = {
            partition: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for partition, records in batch.items()
        }
        producer.send_offsets_to_transaction(offsets, group)
        producer.commit_transaction()
    assert all((consumer.committed(TopicPartition(topic, index)) or 0) > 0 for index in range(2))
    consumer.close()
    producer.close()
    assert read_all(broker, f"{topic}-copies") == sorted(f"{number}!".encode() for number in range(10))
