"""Brokers in the test's process with users, and clients of them in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cluster.users import CredentialChange
from penstock.config import Address
from penstock.security.scram import ScramMechanism
from penstock.server.first_user import credentials
from support.harness import Harness
from support.whole_brokers import Brokers

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)


def address_of(brokers: Brokers, number: int, listener: str) -> Address:
    image = brokers.running[number]._metadata.image
    found = next(each for each in image.brokers.values() if each.node_id == number).address_for(listener)
    assert found is not None
    return found


async def add_user(harness: Harness, name: str, password: str) -> None:
    changes = await in_thread(lambda: credentials(harness.context, name, password))
    assert await harness.context.administration.alter_user_credentials(changes) == {name: None}


async def delete_user(harness: Harness, name: str) -> None:
    changes = [CredentialChange(name, mechanism) for mechanism in ScramMechanism]
    assert await harness.context.administration.alter_user_credentials(changes) == {name: None}


def create(settings: dict[str, Any], topic: str, replication_factor: int = 1) -> None:
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1, replication_factor)])[topic].result(30)


def produce(settings: dict[str, Any], topic: str, count: int, content: bytes = bytes(1_000)) -> None:
    """Produce numbered records and check that all were acknowledged."""
    producer = Producer({**settings, "acks": "all"})
    errors: list[object] = []
    for number in range(count):
        value = number.to_bytes(4, "big") + content
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert not errors


def consume(settings: dict[str, Any], topic: str, count: int) -> list[int]:
    """Consume records in a group and return their numbers."""
    group = f"readers-of-{topic}-at-{settings['bootstrap.servers']}"
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest", "check.crcs": True})
    consumer.subscribe([topic])
    numbers: list[int] = []
    try:
        while len(numbers) < count:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None, message.error()
            numbers.append(int.from_bytes((message.value() or b"")[:4], "big"))
    finally:
        consumer.close()
    return numbers


def named(settings: dict[str, str]) -> dict[str, str]:
    """Settings as keyword arguments of `run`."""
    return {name.replace(".", "_"): value for name, value in settings.items()}
