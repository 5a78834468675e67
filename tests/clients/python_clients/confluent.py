"""Helpers of the confluent-kafka tests: create topics, send, read."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from samples import PATIENCE_S, Sample

from support.broker_process import Address
from support.eventually import eventually


def create(admin: AdminClient, topic: NewTopic) -> None:
    admin.create_topics([topic], operation_timeout=10)[topic.topic].result(PATIENCE_S)
    eventually(lambda: topic.topic in admin.list_topics(timeout=30).topics)


def send(broker: Address, topic: str, samples: list[Sample], **config: Any) -> list[Message]:
    """Produce to partition 0 and return the delivery reports in order."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 20} | settings)
    reports: list[Message] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        reports.append(message)

    for sample in samples:
        producer.produce(
            topic,
            sample.value,
            sample.key,
            partition=0,
            timestamp=sample.timestamp_ms,
            headers=list(sample.headers),
            on_delivery=delivered,
        )
    assert producer.flush(PATIENCE_S) == 0
    return reports


def read(consumer: Consumer, topic: str, count: int, offset: int = OFFSET_BEGINNING) -> list[Sample]:
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[Sample] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages came"
        found += [as_sample(message) for message in consumer.consume(count - len(found), timeout=1)]
    return found


def as_sample(message: Message) -> Sample:
    assert message.error() is None, message.error()
    _, timestamp_ms = message.timestamp()
    headers = tuple(message.headers() or ())
    return Sample(message.offset(), timestamp_ms, message.key(), message.value(), headers)


def described(admin: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    (found,) = admin.describe_configs([resource]).values()
    entries: dict[str, ConfigEntry] = found.result(PATIENCE_S)
    return entries


def alter(
    admin: AdminClient, resource: ConfigResource, operation: AlterConfigOpType, changes: dict[str, str]
) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=operation) for name, value in changes.items()]
    wanted = ConfigResource(resource.restype, resource.name, incremental_configs=entries)
    (done,) = admin.incremental_alter_configs([wanted]).values()
    done.result(PATIENCE_S)
