"""Share groups with confluent-kafka's ShareConsumer: implicit and explicit acknowledgement, several consumers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent import create
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from support.broker_process import Address
from support.cluster_processes import BROKERS

RECORDS = 500
PATIENCE_SECONDS = 60.0


@pytest.fixture
def group(admin: AdminClient, topic_name: str) -> str:
    """A share group that reads from the start, with short locks."""
    name = f"share-{topic_name}"
    configs = {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": "1500",
        "share.heartbeat.interval.ms": "300",
    }
    entries = [
        ConfigEntry(each, value, incremental_operation=AlterConfigOpType.SET)
        for each, value in configs.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    return name


@pytest.fixture
def topic(admin: AdminClient, topic_name: str, broker: Address) -> str:
    create(admin, NewTopic(topic_name, 2, BROKERS))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 3})
    for number in range(RECORDS):
        producer.produce(topic_name, str(number).encode(), partition=number % 2)
    assert producer.flush(30) == 0
    return topic_name


@contextmanager
def consuming(broker: Address, group: str, topic: str, **settings: Any) -> Iterator[ShareConsumer]:
    consumer = ShareConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 3, **settings}
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def polled(consumer: ShareConsumer) -> list[Message]:
    messages = consumer.poll(1.0)
    assert all(message.error() is None for message in messages)
    return list(messages)


def test_implicit_acknowledgement_delivers_each_record_once(broker: Address, topic: str, group: str) -> None:
    seen: Counter[bytes] = Counter()
    deadline = time.monotonic() + PATIENCE_SECONDS
    with consuming(broker, group, topic) as first, consuming(broker, group, topic) as second:
        while len(seen) < RECORDS and time.monotonic() < deadline:
            for consumer in (first, second):
                seen.update(message.value() for message in polled(consumer))
        for consumer in (first, second):
            polled(consumer)  # acknowledges the last records
    assert set(seen) == {str(number).encode() for number in range(RECORDS)}
    assert set(seen.values()) == {1}
    with consuming(broker, group, topic) as later:
        assert polled(later) == []


def test_explicit_acknowledgement_releases_and_rejects(broker: Address, topic: str, group: str) -> None:
    attempts: Counter[int] = Counter()
    deadline = time.monotonic() + PATIENCE_SECONDS
    settled: set[int] = set()
    settings = {"share.acknowledgement.mode": "explicit"}
    with consuming(broker, group, topic, **settings) as consumer:
        while len(settled) < RECORDS and time.monotonic() < deadline:
            for message in polled(consumer):
                number = int(message.value())
                attempts[number] += 1
                if number % 10 == 3 and attempts[number] == 1:
                    consumer.acknowledge(message, AcknowledgeType.RELEASE)
                    continue
                kind = AcknowledgeType.REJECT if number % 10 == 7 else AcknowledgeType.ACCEPT
                consumer.acknowledge(message, kind)
                settled.add(number)
            results = consumer.commit_sync(10.0)
            assert all(error is None for error in results.values())
    assert len(settled) == RECORDS
    assert {attempts[number] for number in range(3, RECORDS, 10)} == {2}
    assert {attempts[number] for number in range(7, RECORDS, 10)} == {1}
    with consuming(broker, group, topic) as later:
        assert polled(later) == []


def test_records_of_a_closed_consumer_are_delivered_to_another(
    broker: Address, topic: str, group: str
) -> None:
    settings = {"share.acknowledgement.mode": "explicit"}
    deadline = time.monotonic() + PATIENCE_SECONDS
    with consuming(broker, group, topic, **settings) as gone:
        held: list[Message] = []
        while not held and time.monotonic() < deadline:
            held = polled(gone)
        lost = {message.value() for message in held}
    assert lost
    seen: set[bytes] = set()
    with consuming(broker, group, topic) as consumer:
        while not lost <= seen and time.monotonic() < deadline:
            seen.update(message.value() for message in polled(consumer))
    assert lost <= seen


def test_read_committed_group_gets_no_aborted_record(
    admin: AdminClient, broker: Address, topic_name: str, group: str
) -> None:
    create(admin, NewTopic(topic_name, 1, BROKERS))
    entry = ConfigEntry(
        "share.isolation.level", "read_committed", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic_name, "log_level": 3}
    )
    producer.init_transactions(30)
    committed = set()
    for number in range(10):
        producer.begin_transaction()
        for place in range(5):
            value = f"{number}:{place}".encode()
            producer.produce(topic_name, value)
            if number % 2 == 0:
                committed.add(value)
        producer.flush(30)
        if number % 2 == 0:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"open")
    producer.flush(30)
    seen: Counter[bytes] = Counter()
    deadline = time.monotonic() + PATIENCE_SECONDS
    with consuming(broker, group, topic_name) as consumer:
        while set(seen) != committed and time.monotonic() < deadline:
            seen.update(message.value() for message in polled(consumer))
        seen.update(message.value() for message in polled(consumer))
    producer.abort_transaction(30)
    assert set(seen) == committed
    assert set(seen.values()) == {1}
