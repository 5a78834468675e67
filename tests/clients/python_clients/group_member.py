"""A group member process that tests kill: `group_member.py LIBRARY OPTIONS`.

Prints one JSON object per line: partitions assigned or revoked, and records. SIGTERM makes it leave the
group.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

stopping = False


def stop(number: int, frame: object) -> None:
    global stopping
    stopping = True


def tell(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, "at": time.monotonic(), **fields}), flush=True)


def tell_partitions(event: str, places: Iterable[Any]) -> None:
    tell(event, partitions=sorted((place.topic, place.partition) for place in places))


def tell_record(topic: str, partition: int, offset: int, value: bytes) -> None:
    tell("record", topic=topic, partition=partition, offset=offset, value=value.decode())


def confluent(bootstrap: str, group: str, topics: list[str], config: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaException

    def revoked(consumer: Any, places: list[Any]) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            tell("commit failed", error=str(error))
        tell_partitions("revoked", places)

    defaults = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 200, "fetch.wait.max.ms": 100}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group} | defaults | config)
    consumer.subscribe(
        topics,
        on_assign=lambda _, places: tell_partitions("assigned", places),
        on_revoke=revoked,
        on_lost=lambda _, places: tell_partitions("lost", places),
    )
    while not stopping:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            tell_record(message.topic(), message.partition(), message.offset(), message.value())
        elif message is not None:
            tell("error", error=str(message.error()))
    consumer.close()


def aiokafka(**options: Any) -> None:
    asyncio.run(_aiokafka(**options))


async def _aiokafka(bootstrap: str, group: str, topics: list[str], config: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            tell_partitions("revoked", revoked)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell_partitions("assigned", assigned)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        fetch_max_wait_ms=100,
        **_with_assignor(config, "aiokafka"),
    )
    consumer.subscribe(topics, listener=Listener())
    await consumer.start()
    while not stopping:
        for records in (await consumer.getmany(timeout_ms=100)).values():
            for record in records:
                tell_record(record.topic, record.partition, record.offset, record.value)
    await consumer.stop()


def kafka_python(bootstrap: str, group: str, topics: list[str], config: dict[str, Any]) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            tell_partitions("revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            tell_partitions("assigned", assigned)

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        fetch_max_wait_ms=100,
        **_with_assignor(config, "kafka"),
    )
    consumer.subscribe(topics, listener=Listener())
    while not stopping:
        # A long poll: kafka-python 3.0.12 loses the assignment if a poll ends between JoinGroup and
        # SyncGroup.
        for records in consumer.poll(timeout_ms=5_000).values():
            for record in records:
                tell_record(record.topic, record.partition, record.offset, record.value)
    consumer.close()


def _with_assignor(config: dict[str, Any], package: str) -> dict[str, Any]:
    """`assignor` names a module and a class of the library's assignors."""
    place = config.pop("assignor", None)
    if place is None:
        return config
    module, name = place.split(":")
    assignor = getattr(importlib.import_module(f"{package}.coordinator.assignors.{module}"), name)
    return config | {"partition_assignment_strategy": (assignor,)}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    libraries: dict[str, Callable[..., None]] = {
        "confluent": confluent,
        "aiokafka": aiokafka,
        "kafka-python": kafka_python,
    }
    libraries[sys.argv[1]](**json.loads(sys.argv[2]))
