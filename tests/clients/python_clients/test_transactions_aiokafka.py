"""Transactions with unmodified aiokafka: the oldest request versions."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced
from samples import PATIENCE_S
from test_aiokafka import create, run, started

from support.broker_process import Address


def producer_of(broker: Address, transactional_id: str | None = None) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=transactional_id or f"t-{uuid.uuid4().hex[:8]}"
    )


async def read_all(broker: Address, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Read all records up to the end of both partitions."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level=isolation, enable_auto_commit=False
    )
    async with started(consumer):
        partitions = [TopicPartition(topic, index) for index in range(2)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        values: list[bytes] = []
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            for records in (await consumer.getmany(timeout_ms=100)).values():
                values += [record.value for record in records]
        return sorted(values)


def test_committed_transactions_are_read_and_aborted_ones_are_not(broker: Address, topic_name: str) -> None:
    async def test() -> None:
        await create(broker, topic_name, 2)
        async with started(producer_of(broker)) as producer:
            async with producer.transaction():
                for place, value in enumerate([b"a", b"b", b"c"]):
                    await producer.send(topic_name, value, partition=place % 2)
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with producer.transaction():
                    await producer.send_and_wait(topic_name, b"x", partition=0)
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send(topic_name, b"d", partition=1)
        assert await read_all(broker, topic_name) == [b"a", b"b", b"c", b"d"]
        assert await read_all(broker, topic_name, "read_uncommitted") == [b"a", b"b", b"c", b"d", b"x"]

    run(test())


def test_zombie_is_fenced(broker: Address, topic_name: str) -> None:
    async def test() -> None:
        await create(broker, topic_name, 2)
        transactional_id = f"t-{uuid.uuid4().hex[:8]}"
        async with started(producer_of(broker, transactional_id)) as zombie:
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic_name, b"zombie", partition=0)
            async with started(producer_of(broker, transactional_id)) as successor:
                async with successor.transaction():
                    await successor.send_and_wait(topic_name, b"successor", partition=0)
                with pytest.raises(ProducerFenced):
                    await zombie.commit_transaction()
        assert await read_all(broker, topic_name) == [b"successor"]

    run(test())


def test_aiokafka_consume_transform_produce_writes_each_message_once(
    broker: Address, topic_name: str
) -> None:
    async def test() -> None:
        source, target, group = topic_name, f"{topic_name}-copies", f"g-{uuid.uuid4().hex[:8]}"
        await create(broker, source, 2)
        await create(broker, target, 2)
        async with started(producer_of(broker)) as producer:
            async with producer.transaction():
                for number in range(10):
                    await producer.send(source, str(number).encode(), partition=number % 2)
            consumer = AIOKafkaConsumer(
                source,
                bootstrap_servers=broker.bootstrap,
                group_id=group,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            )
            async with started(consumer):
                copied = 0
                while copied < 10:
                    async with producer.transaction():
                        batch = await asyncio.wait_for(consumer.getmany(timeout_ms=500), PATIENCE_S)
                        for partition, records in batch.items():
                            for record in records:
                                await producer.send(
                                    target, record.value + b"!", partition=partition.partition
                                )
                                copied += 1
                        offsets = {partition: records[-1].offset + 1 for partition, records in batch.items()}
                        if offsets:
                            await producer.send_offsets_to_transaction(offsets, group)
                partitions = [TopicPartition(source, index) for index in range(2)]
                ends = await consumer.end_offsets(partitions)
                for partition in partitions:
                    committed = await consumer.committed(partition)
                    # The commit marker of the source's transaction is between the last record and the log
                    # end.
                    assert committed is not None
                    assert committed in (ends[partition], ends[partition] - 1)
        assert await read_all(broker, target) == sorted(f"{number}!".encode() for number in range(10))

    run(test())
