"""Unmodified aiokafka: a protocol implementation of its own, with older request versions than librdkafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError
from samples import CODECS, HOUR_MS, PATIENCE_S, STEP_MS, Sample, make_large_samples, make_samples

from support.broker_process import Address
from support.cluster_processes import BROKERS

UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS = 3, 36


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 3 * PATIENCE_S))


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    """Start a client, and end it (`close` for an admin client, `stop` for others)."""
    try:
        await client.start()
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def create(broker: Address, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    async with started(AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        answer = await admin.create_topics([NewTopic(topic, partitions, BROKERS, topic_configs=settings)])
        assert [error[1] for error in answer.topic_errors] == [0]
        for _ in range(int(PATIENCE_S * 50)):
            if topic in await admin.list_topics():
                return
            await asyncio.sleep(0.02)
    raise AssertionError(f"{topic} does not appear")


async def send(broker: Address, topic: str, samples: list[Sample], **config: Any) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **({"acks": "all"} | config))
    async with started(producer):
        waiting = [await _hand_over(producer, topic, sample) for sample in samples]
        answers = await asyncio.gather(*waiting)
    if config.get("acks") != 0:
        assert [answer.offset for answer in answers] == [sample.offset for sample in samples]


async def _hand_over(producer: AIOKafkaProducer, topic: str, sample: Sample) -> Any:
    return await producer.send(
        topic,
        sample.value,
        sample.key,
        partition=0,
        timestamp_ms=sample.timestamp_ms,
        headers=list(sample.headers),
    )


@asynccontextmanager
async def reader(broker: Address, topic: str, **config: Any) -> AsyncIterator[AIOKafkaConsumer]:
    settings: dict[str, Any] = {"group_id": None, "auto_offset_reset": "none", "fetch_max_wait_ms": 50}
    async with started(
        AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, **(settings | config))
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        yield consumer


async def read(consumer: AIOKafkaConsumer, topic: str, count: int, offset: int = 0) -> list[Sample]:
    consumer.seek(TopicPartition(topic, 0), offset)
    return [as_sample(await asyncio.wait_for(consumer.getone(), PATIENCE_S)) for _ in range(count)]


def as_sample(record: ConsumerRecord[bytes, bytes]) -> Sample:
    return Sample(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_back_what_it_produced_with_each_codec(
    broker: Address, topic_name: str, codec: str
) -> None:
    async def test() -> None:
        await create(broker, topic_name)
        samples = make_samples(300)
        await send(broker, topic_name, samples, compression_type=None if codec == "none" else codec)
        async with reader(broker, topic_name) as consumer:
            assert await read(consumer, topic_name, 300) == samples
            assert await read(consumer, topic_name, 100, offset=200) == samples[200:]

    run(test())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_aiokafka_stores_with_every_form_of_acknowledgement(
    broker: Address, topic_name: str, acks: int | str
) -> None:
    async def test() -> None:
        await create(broker, topic_name)
        samples = make_samples(50)
        await send(broker, topic_name, samples, acks=acks)
        async with reader(broker, topic_name) as consumer:
            assert await read(consumer, topic_name, 50) == samples

    run(test())


def test_aiokafka_idempotent_producer_keeps_order(broker: Address, topic_name: str) -> None:
    async def test() -> None:
        await create(broker, topic_name)
        samples = make_samples(500)
        await send(broker, topic_name, samples, enable_idempotence=True, max_batch_size=6_000)
        async with reader(broker, topic_name) as consumer:
            assert await read(consumer, topic_name, 500) == samples

    run(test())


def test_aiokafka_finds_offsets_by_time_and_the_ends(broker: Address, topic_name: str) -> None:
    async def test() -> None:
        await create(broker, topic_name)
        samples = make_samples(100)
        await send(broker, topic_name, samples, max_batch_size=6_000)
        place = TopicPartition(topic_name, 0)
        async with reader(broker, topic_name) as consumer:
            for sample in samples[::13]:
                found = await consumer.offsets_for_times({place: sample.timestamp_ms - STEP_MS // 2})
                assert (found[place].offset, found[place].timestamp) == (sample.offset, sample.timestamp_ms)
            assert (await consumer.offsets_for_times({place: samples[-1].timestamp_ms + HOUR_MS}))[
                place
            ] is None
            assert await consumer.beginning_offsets([place]) == {place: 0}
            assert await consumer.end_offsets([place]) == {place: 100}

    run(test())


def test_aiokafka_large_messages_come_back_whole(broker: Address, topic_name: str) -> None:
    async def test() -> None:
        await create(broker, topic_name)
        large = make_large_samples(3)
        await send(broker, topic_name, large)
        async with reader(broker, topic_name) as consumer:
            assert await read(consumer, topic_name, 3) == large

    run(test())


def test_aiokafka_message_above_the_topics_limit_is_refused(broker: Address, topic_name: str) -> None:
    async def test() -> None:
        await create(broker, topic_name, max_message_bytes="20000")
        async with started(AIOKafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic_name, bytes(30_000))

    run(test())


def test_aiokafka_deletes_records(broker: Address, topic_name: str) -> None:
    async def test() -> None:
        await create(broker, topic_name)
        samples = make_samples(60)
        await send(broker, topic_name, samples, max_batch_size=6_000)
        place = TopicPartition(topic_name, 0)
        async with started(AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
            assert await admin.delete_records({place: RecordsToDelete(before_offset=25)}) == {place: 25}
        async with reader(broker, topic_name) as consumer:
            assert await consumer.beginning_offsets([place]) == {place: 25}
            assert await read(consumer, topic_name, 35, offset=25) == samples[25:]
            consumer.seek(place, 24)
            with pytest.raises(OffsetOutOfRangeError):
                await asyncio.wait_for(consumer.getone(), PATIENCE_S)

    run(test())


def test_aiokafka_describes_and_alters_configs(broker: Address, topic_name: str) -> None:
    async def test() -> None:
        await create(broker, topic_name, retention_ms="3600000")
        async with started(AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
            assert await _setting(admin, topic_name, "retention.ms") == "3600000"
            changed = ConfigResource(
                ConfigResourceType.TOPIC, topic_name, configs={"retention.ms": "7200000"}
            )
            (answer,) = await admin.alter_configs([changed])
            assert [resource[0] for resource in answer.resources] == [0]
            for _ in range(int(PATIENCE_S * 50)):
                if await _setting(admin, topic_name, "retention.ms") == "7200000":
                    return
                await asyncio.sleep(0.02)
            raise AssertionError("the change does not appear")

    run(test())


async def _setting(admin: AIOKafkaAdminClient, topic: str, name: str) -> str:
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    ((error_code, _, _, _, entries),) = answer.resources
    assert error_code == 0
    return str(next(entry[1] for entry in entries if entry[0] == name))


def test_aiokafka_adds_partitions_and_deletes_topics(broker: Address, topic_name: str) -> None:
    async def test() -> None:
        await create(broker, topic_name)
        async with started(AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
            again = await admin.create_topics([NewTopic(topic_name, 1, BROKERS)])
            assert [error[1] for error in again.topic_errors] == [TOPIC_ALREADY_EXISTS]
            added = await admin.create_partitions({topic_name: NewPartitions(3)})
            assert [error[1] for error in added.topic_errors] == [0]
            (described,) = await admin.describe_topics([topic_name])
            assert len(described["partitions"]) == 3
            deleted = await admin.delete_topics([topic_name])
            assert [code for _, code in deleted.topic_error_codes] == [0]
            gone = await admin.delete_topics([topic_name])
            assert [code for _, code in gone.topic_error_codes] == [UNKNOWN_TOPIC_OR_PARTITION]
            assert topic_name not in await admin.list_topics()

    run(test())


def test_aiokafka_producer_creates_its_topic(broker: Address, topic_name: str) -> None:
    async def test() -> None:
        async with started(AIOKafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
            answer = await producer.send_and_wait(topic_name, b"first", key=b"key")
            assert answer.offset == 0
        async with reader(broker, topic_name) as consumer:
            assert [sample.value for sample in await read(consumer, topic_name, 1)] == [b"first"]

    run(test())
