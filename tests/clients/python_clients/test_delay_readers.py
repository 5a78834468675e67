"""Readers of delay topics among pending messages: long stretches of them, tiny fetches, and the end of the log."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer, TopicPartition
from samples import PATIENCE_S

import kafka
from support.broker_process import Address, MakeTopic
from support.eventually import eventually

RECORDS = 2_100
BATCH = 7
HOUR_MS = 3_600_000
KCAT = shutil.which("kcat") or shutil.which("kafkacat")


def is_due(number: int) -> bool:
    """Dense at first, then sparse, then a long stretch of pending messages, one that is due, and pending ones."""
    return (number < 200 and number % 2 == 0) or (200 <= number < 700 and number % 90 == 0) or number == 1_500


DUE = [number for number in range(RECORDS) if is_due(number)]


def delay_ms(number: int) -> int | None:
    if not is_due(number):
        return HOUR_MS
    return 50 if number % 4 == 0 else None


@pytest.fixture
def topic(broker: Address, make_topic: MakeTopic) -> str:
    """A topic in which all due messages were delivered."""
    name = make_topic(1, delivery_delay="true")
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "batch.num.messages": BATCH,
        "linger.ms": 20,
        "log_level": 3,
    }
    producer = Producer(settings)
    for number in range(RECORDS):
        delay = delay_ms(number)
        headers = [] if delay is None else [("penstock-delay-ms", b"%d" % delay)]
        producer.produce(name, b"%d" % number, key=b"k", partition=0, headers=headers)
    assert producer.flush(PATIENCE_S) == 0
    delivered = sum(delay_ms(number) == 50 for number in range(RECORDS))
    eventually(lambda: end_of(broker, name) == RECORDS + delivered, "all due messages are delivered")
    return name


def end_of(broker: Address, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)[1])
    finally:
        consumer.close()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("fetch_bytes", [100, 2_000, 1_048_576])
def test_confluent_reads_to_the_end(broker: Address, topic: str, fetch_bytes: int, isolation: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": isolation,
            "fetch.message.max.bytes": fetch_bytes,
        }
    )
    consumer.subscribe([topic])
    values: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            break
        if message is not None:
            values.append(int(message.value()))
    end = end_of(broker, topic)
    [committed] = consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(values) == DUE
    assert committed.offset == end


def test_kafka_python_reads_to_the_end(broker: Address, topic: str) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=2_000,
        fetch_max_wait_ms=50,
    )
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    values: list[int] = []
    end, deadline = end_of(broker, topic), time.monotonic() + PATIENCE_S
    while consumer.position(partition) < end and time.monotonic() < deadline:
        for polled in consumer.poll(200).values():
            values += [int(record.value) for record in polled]
    assert sorted(values) == DUE
    assert consumer.position(partition) == end
    consumer.close()


async def test_aiokafka_reads_to_the_end(broker: Address, topic: str) -> None:
    import aiokafka

    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=2_000,
        fetch_max_wait_ms=50,
    )
    await consumer.start()
    try:
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        values: list[int] = []
        end = await asyncio.to_thread(end_of, broker, topic)
        async with asyncio.timeout(PATIENCE_S):
            while await consumer.position(partition) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    values += [int(record.value) for record in records]
        assert sorted(values) == DUE
    finally:
        await consumer.stop()


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed")
def test_kcat_reads_to_the_end(broker: Address, topic: str) -> None:
    place = ["-b", broker.bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning"]
    done = subprocess.run(
        [str(KCAT), "-q", *place, "-e", "-J"], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert sorted(int(json.loads(line)["payload"]) for line in done.stdout.splitlines()) == DUE
