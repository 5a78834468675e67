"""A confluent-kafka producer at full speed; the time ends when every message is stored."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.client_security import client_security
from bench.driver import Figures, drive
from bench.payload import compressible_values, random_values

CHUNK = 1_000
QUEUED_MESSAGES = 200_000
FLUSH_TIMEOUT_S = 120


def produce(
    bootstrap: str,
    topic: str,
    partitions: int,
    count: int,
    size: int,
    compressible: bool = False,
    config: dict[str, Any] | None = None,
    messages_per_s: float = 0,
) -> Figures:
    """Seconds from the first message to the last acknowledgement; a rate of 0 means full speed."""
    values = compressible_values(size) if compressible else random_values(size)
    chunk = [{"value": values[i % len(values)]} for i in range(CHUNK)]
    producer = _connected(bootstrap, topic, config or {})
    began_at, began = time.time(), time.perf_counter()
    for sent in range(0, count, CHUNK):
        while len(producer) > QUEUED_MESSAGES or (
            messages_per_s and sent / messages_per_s > time.perf_counter() - began
        ):
            producer.poll(0.001)
        producer.produce_batch(topic, chunk[: count - sent], on_delivery=_refuse_errors)
    left = producer.flush(FLUSH_TIMEOUT_S)
    seconds = time.perf_counter() - began
    stored = _stored(bootstrap, topic, partitions)
    if left or stored < count:
        raise RuntimeError(f"{count} messages sent, {left} not acknowledged, {stored} stored")
    return {"began_at": began_at, "seconds": seconds, "messages": count, "bytes": count * size}


def _connected(bootstrap: str, topic: str, config: dict[str, Any]) -> Producer:
    settings = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "linger.ms": 5,
        "queue.buffering.max.messages": QUEUED_MESSAGES + 2 * CHUNK,
        "delivery.report.only.error": True,
        **client_security(),
    }
    producer = Producer(settings | config)
    producer.list_topics(topic, timeout=30)
    return producer


def _refuse_errors(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise RuntimeError(f"delivery failed: {error}")


def _stored(bootstrap: str, topic: str, partitions: int) -> int:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", **client_security()})
    ends = [
        reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        for partition in range(partitions)
    ]
    reader.close()
    return sum(high - low for low, high in ends)


if __name__ == "__main__":
    drive(produce)
