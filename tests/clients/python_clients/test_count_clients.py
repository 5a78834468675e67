"""Unmodified clients while a topic gets fewer partitions: the lines of the table in docs/partitions.md."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from samples import PATIENCE_S

import kafka
from support.broker_process import Address, MakeTopic
from support.counted_topic import CountedTopic
from support.eventually import eventually

PARTITIONS, FEWER = 4, 2
ROUND = 40
MODES = ("keyed", "unkeyed", "idempotent", "transactional")

Send = Callable[[Sequence[str]], list[int]]
"""Sends values, waits for all of them, and returns their partitions. A failed send raises."""


@pytest.fixture
def topic(broker: Address, make_topic: MakeTopic) -> CountedTopic:
    return CountedTopic(
        broker.bootstrap, make_topic(PARTITIONS, partition_drain_quiet_ms="700", retention_ms="-1")
    )


def _key(mode: str, value: str) -> bytes | None:
    return None if mode == "unkeyed" else value.encode()


def confluent(topic: CountedTopic, mode: str, client_id: str) -> Iterator[Send]:
    settings: dict[str, Any] = {"bootstrap.servers": topic.bootstrap, "client.id": client_id, "log_level": 3}
    settings |= {"enable.idempotence": True} if mode == "idempotent" else {}
    settings |= {"transactional.id": client_id} if mode == "transactional" else {}
    # Messages without a key go to a partition of their own each, as with many batches.
    producer = Producer(
        {**settings, "sticky.partitioning.linger.ms": 0, "topic.metadata.refresh.interval.ms": 200}
    )
    if mode == "transactional":
        producer.init_transactions(PATIENCE_S)

    def send(values: Sequence[str]) -> list[int]:
        reports: list[tuple[Any, Any]] = []
        if mode == "transactional":
            producer.begin_transaction()
        for value in values:
            producer.produce(
                topic.name, value, _key(mode, value), on_delivery=lambda *report: reports.append(report)
            )
        assert producer.flush(PATIENCE_S) == 0
        if mode == "transactional":
            producer.commit_transaction(PATIENCE_S)
        assert [error for error, _ in reports if error is not None] == []
        return [message.partition() for _, message in reports]

    yield send
    producer.flush(PATIENCE_S)


def kafka_python(topic: CountedTopic, mode: str, client_id: str) -> Iterator[Send]:
    settings: dict[str, Any] = {"transactional_id": client_id} if mode == "transactional" else {}
    producer = kafka.KafkaProducer(
        bootstrap_servers=topic.bootstrap,
        client_id=client_id,
        metadata_max_age_ms=200,
        enable_idempotence=mode in ("idempotent", "transactional"),
        **settings,
    )
    if mode == "transactional":
        producer.init_transactions()

    def send(values: Sequence[str]) -> list[int]:
        if mode == "transactional":
            producer.begin_transaction()
        sent = [producer.send(topic.name, value.encode(), _key(mode, value)) for value in values]
        found = [each.get(PATIENCE_S).partition for each in sent]
        if mode == "transactional":
            producer.commit_transaction()
        return found

    yield send
    producer.close()


def aiokafka(topic: CountedTopic, mode: str, client_id: str) -> Iterator[Send]:
    loop = asyncio.new_event_loop()
    settings: dict[str, Any] = {"transactional_id": client_id} if mode == "transactional" else {}
    settings |= {"enable_idempotence": True} if mode == "idempotent" else {}

    async def start() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=topic.bootstrap, client_id=client_id, metadata_max_age_ms=200, **settings
        )
        await producer.start()
        return producer

    async def send_all(values: Sequence[str]) -> list[int]:
        if mode == "transactional":
            await producer.begin_transaction()
        sent = [await producer.send(topic.name, value.encode(), _key(mode, value)) for value in values]
        found = [(await each).partition for each in sent]
        if mode == "transactional":
            await producer.commit_transaction()
        return found

    producer = loop.run_until_complete(start())
    yield lambda values: loop.run_until_complete(send_all(values))
    loop.run_until_complete(producer.stop())
    loop.close()


PRODUCERS = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}


def read_confluent(topic: CountedTopic, group: str, protocol: str = "classic") -> Generator[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": topic.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "client.id": group,
            "log_level": 3,
        }
    )
    consumer.subscribe([topic.name])
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                yield message.value().decode()
    finally:
        consumer.close()


def read_kafka_python(topic: CountedTopic, group: str) -> Generator[str]:
    consumer = kafka.KafkaConsumer(
        topic.name,
        bootstrap_servers=topic.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        client_id=group,
        consumer_timeout_ms=round(PATIENCE_S * 1000),
    )
    try:
        for message in consumer:
            yield message.value.decode()
    finally:
        consumer.close()


def read_aiokafka(topic: CountedTopic, group: str) -> Generator[str]:
    loop = asyncio.new_event_loop()

    async def start() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic.name,
            bootstrap_servers=topic.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            client_id=group,
            metadata_max_age_ms=200,
        )
        await consumer.start()
        return consumer

    consumer = loop.run_until_complete(start())
    try:
        while True:
            yield loop.run_until_complete(asyncio.wait_for(consumer.getone(), PATIENCE_S)).value.decode()
    finally:
        loop.run_until_complete(consumer.stop())
        loop.close()


READERS: dict[str, Callable[[CountedTopic, str], Generator[str]]] = {
    "confluent-kafka": read_confluent,
    "confluent-kafka, new protocol": lambda topic, group: read_confluent(topic, group, "consumer"),
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
}


@pytest.mark.drawn
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("client", PRODUCERS)
def test_clients_that_produce_lose_nothing_while_a_topic_gets_fewer_partitions(
    client: str, mode: str, topic: CountedTopic
) -> None:
    """A running producer keeps all partitions and loses nothing, nor does a reconnecting one; a new one has fewer."""
    sent: list[str] = []

    def values() -> list[str]:
        sent.extend(str(number) for number in range(len(sent), len(sent) + ROUND))
        return sent[-ROUND:]

    running = PRODUCERS[client](topic, mode, "running")
    send = next(running)
    assert set(send(values())) <= set(range(PARTITIONS))
    topic.set_count(FEWER, waits_for_groups=False)
    deadline = time.monotonic() + 1.2
    while time.monotonic() < deadline:
        send(values())
    next(running, None)

    reconnecting = PRODUCERS[client](topic, mode, "running")
    next(reconnecting)(values())
    next(reconnecting, None)

    def new_client_is_shown_fewer() -> bool:
        new = PRODUCERS[client](topic, mode, f"new-{len(sent)}")
        found = next(new)(values())
        next(new, None)
        return set(found) <= set(range(FEWER))

    eventually(new_client_is_shown_fewer)
    topic.until("active", "active", "sealed", "sealed")
    after = PRODUCERS[client](topic, mode, "running")
    assert set(next(after)(values())) <= set(range(FEWER))
    next(after, None)
    reader = read_confluent(topic, "all")
    found = [value for value, _ in zip(reader, sent, strict=False)]
    reader.close()
    assert (sorted(set(sent) - set(found)), len(found)) == ([], len(sent))


@pytest.mark.drawn
@pytest.mark.parametrize("phase", ["draining", "sealed"])
@pytest.mark.parametrize("client", READERS)
def test_clients_that_consume_read_everything_while_a_topic_gets_fewer_partitions(
    client: str, phase: str, broker: Address, make_topic: MakeTopic
) -> None:
    """A running, a new and a restarted group read everything, whether partitions drain or are sealed.

    confluent-kafka and kafka-python read their metadata again every five minutes, as by default, and the test ends
    before. A new group of aiokafka has to read its metadata again to find draining partitions.
    """
    quiet_ms = "700" if phase == "sealed" else "600000"
    topic = CountedTopic(
        broker.bootstrap, make_topic(PARTITIONS, partition_drain_quiet_ms=quiet_ms, retention_ms="-1")
    )
    producer = Producer({"bootstrap.servers": topic.bootstrap, "client.id": "writer", "log_level": 3})

    def send(text: str) -> set[str]:
        values = {f"{text} {number}" for number in range(PARTITIONS * 5)}
        for number in range(PARTITIONS * 5):
            producer.produce(topic.name, f"{text} {number}", partition=number % PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0
        return values

    expected = send("before")
    running = READERS[client](topic, f"running {topic.name}")
    seen = {next(running) for _ in expected}
    topic.set_count(FEWER, waits_for_groups=False)
    more = send("while draining")
    seen |= {next(running) for _ in more}
    expected |= more
    assert seen == expected
    if phase == "sealed":
        topic.until("active", "active", "sealed", "sealed")
    topic.until_shown(FEWER)
    for group in ("new", "other"):
        reader = READERS[client](topic, f"{group} {topic.name}")
        assert {next(reader) for _ in expected} == expected
        reader.close()
    running.close()
    if phase == "draining":
        later = send("later")
        restarted = READERS[client](topic, f"running {topic.name}")
        while later:
            later.discard(next(restarted))
        restarted.close()
    producer.flush(PATIENCE_S)
    assigned = Consumer(
        {"bootstrap.servers": topic.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    assigned.assign([TopicPartition(topic.name, PARTITIONS - 1, 0)])
    assert len(assigned.consume(10, PATIENCE_S)) == 10
    assigned.close()
