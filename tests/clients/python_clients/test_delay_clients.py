"""Delayed messages with unmodified clients: idempotent and transactional producers, every codec, mixed batches."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from samples import CODECS, PATIENCE_S

import kafka
from support.broker_process import Address, MakeTopic

MESSAGES = 300
CLOCK_MS = 1
"""Difference between the clock of a timestamp, in whole milliseconds, and that of the test."""


def delay_ms(number: int) -> int | None:
    """Every third message is not delayed; the others are due in another order than they were sent."""
    return None if number % 3 == 0 else (number * 37) % 400


def headers_of(number: int) -> list[tuple[str, bytes]]:
    delay = delay_ms(number)
    own = [("region", b"eu")]
    return own if delay is None else [*own, ("penstock-delay-ms", b"%d" % delay)]


def test_messages_are_due_in_another_order_than_sent() -> None:
    delays = [delay for number in range(MESSAGES) if (delay := delay_ms(number)) is not None]
    assert sorted(delays) != delays


def send(broker: Address, topic: str, **settings: object) -> dict[int, int]:
    """Send all messages by one producer; the offset of each."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "log_level": 3, **settings})
    stored: dict[int, int] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        stored[int(message.value())] = message.offset()

    for number in range(MESSAGES):
        producer.produce(
            topic, b"%d" % number, key=b"k", partition=0, headers=headers_of(number), on_delivery=note
        )
    assert producer.flush(PATIENCE_S) == 0
    return stored


class Received:
    """Messages that a reader got, with checks of each."""

    def __init__(self, stored: dict[int, int]) -> None:
        self.stored = stored
        self.numbers: list[int] = []

    def take(self, number: int, offset: int, timestamp: int, headers: dict[str, bytes]) -> None:
        assert time.time() * 1000 + CLOCK_MS >= timestamp, "the message is early"
        assert number not in self.numbers, "the message came twice"
        assert headers.pop("region") == b"eu"
        if delay_ms(number) is None:
            assert (offset, headers) == (self.stored[number], {})
        else:
            origin, stored_ms = (
                headers.pop("penstock-origin-offset"),
                headers.pop("penstock-origin-timestamp"),
            )
            assert int(origin) == self.stored[number] < offset
            assert timestamp == int(stored_ms) + (delay_ms(number) or 0)
            assert not headers
        self.numbers.append(number)

    @property
    def is_complete(self) -> bool:
        return len(self.numbers) == len(self.stored)


def receive(broker: Address, topic: str, received: Received, **settings: object) -> None:
    """Read with confluent-kafka until everything came, then to the end."""
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        **settings,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline, is_at_end = time.monotonic() + PATIENCE_S, False
    while not (received.is_complete and is_at_end):
        assert time.monotonic() < deadline, f"{len(received.numbers)} messages came"
        message = consumer.poll(1)
        if message is None:
            continue
        is_at_end = message.error() is not None
        if message.error() is None:
            _, timestamp = message.timestamp()
            headers = dict(message.headers() or ())
            received.take(int(message.value()), message.offset(), timestamp, headers)
    [position] = consumer.position([TopicPartition(topic, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0))
    assert position.offset == end
    consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_idempotent_producer_sends_delayed_messages(
    broker: Address, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(1, delivery_delay="true")
    stored = send(broker, topic, **{"compression.type": codec, "enable.idempotence": True})
    receive(broker, topic, Received(stored))


@pytest.mark.parametrize("fetch_bytes", [100, 2_000])
def test_confluent_reads_delayed_messages_with_small_fetches(
    broker: Address, make_topic: MakeTopic, fetch_bytes: int
) -> None:
    topic = make_topic(1, delivery_delay="true")
    receive(broker, topic, Received(send(broker, topic)), **{"fetch.message.max.bytes": fetch_bytes})


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_confluent_transactional_producer_sends_delayed_messages(
    broker: Address, make_topic: MakeTopic, isolation: str
) -> None:
    topic = make_topic(1, delivery_delay="true")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 3})
    producer.init_transactions()
    stored: dict[int, int] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        stored[int(message.value())] = message.offset()

    for number in range(1, 100):
        if delay_ms(number) is None:
            continue
        producer.begin_transaction()
        is_kept = number % 2 == 0
        report = {"on_delivery": note} if is_kept else {}
        producer.produce(topic, b"%d" % number, key=b"k", headers=headers_of(number), **report)
        producer.commit_transaction() if is_kept else producer.abort_transaction()
    receive(broker, topic, Received(stored), **{"isolation.level": isolation})


def test_kafka_python_sends_and_reads_delayed_messages(broker: Address, make_topic: MakeTopic) -> None:
    topic = make_topic(1, delivery_delay="true")
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=20, compression_type="gzip")
    sent = {
        number: producer.send(topic, b"%d" % number, headers=headers_of(number)) for number in range(MESSAGES)
    }
    producer.flush(PATIENCE_S)
    received = Received({number: future.get(PATIENCE_S).offset for number, future in sent.items()})
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    deadline = time.monotonic() + PATIENCE_S
    while not received.is_complete and time.monotonic() < deadline:
        for polled in consumer.poll(200).values():
            for record in polled:
                received.take(int(record.value), record.offset, record.timestamp, dict(record.headers))
    assert received.is_complete
    consumer.close()


async def test_aiokafka_sends_and_reads_delayed_messages(broker: Address, make_topic: MakeTopic) -> None:
    import aiokafka

    topic = make_topic(1, delivery_delay="true")
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True, linger_ms=20)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await producer.start()
    await consumer.start()
    try:
        sent = [
            await producer.send(topic, b"%d" % number, headers=headers_of(number))
            for number in range(MESSAGES)
        ]
        reports = await asyncio.gather(*sent)
        received = Received({number: report.offset for number, report in enumerate(reports)})
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        async with asyncio.timeout(PATIENCE_S):
            while not received.is_complete:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        received.take(
                            int(record.value), record.offset, record.timestamp, dict(record.headers)
                        )
    finally:
        await consumer.stop()
        await producer.stop()
