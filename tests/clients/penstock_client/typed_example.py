"""A program with strict types that uses the client. mypy checks this file; it never runs."""

from __future__ import annotations

from datetime import datetime

from penstock import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Message,
    Producer,
    TopicPartition,
)


def work(message: Message) -> int:
    when: datetime | None = message.timestamp
    return message.size if when else message.offset


def plain() -> int | None:
    with Producer(profile="throughput", delivery="at-least-once", value_serializer="json") as producer:
        offset: int | None = producer.send("orders", {"id": 1}, key="a").result(timeout_s=5).offset
    with Consumer("orders", group="billing", key_deserializer="str", value_deserializer=int) as consumer:
        for message in consumer:
            work(message)
        place: int | None = consumer.position(TopicPartition("orders", 0))
    lag: int = Admin().groups.describe("billing").lag
    return offset if lag else place


async def in_a_loop() -> str:
    async with AsyncProducer() as producer:
        partition: int = (await producer.send_and_wait("orders", b"x")).partition
    async with AsyncConsumer("orders", start="latest") as consumer:
        async for message in consumer:
            work(message)
        assigned: list[TopicPartition] = await consumer.assignment()
        await consumer.seek(assigned[partition], 0)
    async with AsyncAdmin() as admin:
        names: list[str] = await admin.topics.list(internal=True)
        await admin.topics.create("orders", partitions=3)
    return names[0]
