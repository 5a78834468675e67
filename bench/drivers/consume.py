"""A confluent-kafka consumer at full speed: reads `count` messages of all partitions from an offset."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from bench.client_security import client_security
from bench.driver import Figures, drive

STALL_S = 30


def consume(
    bootstrap: str, topic: str, partitions: int, count: int, offset: int = OFFSET_BEGINNING
) -> Figures:
    """Seconds from the assignment to the last message."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            # A large client queue, so that the client's own queue is never the bottleneck.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 262_144,
            "fetch.queue.backoff.ms": 5,
            **client_security(),
        }
    )
    consumer.list_topics(topic, timeout=30)
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, offset) for partition in range(partitions)])
    received = size = 0
    while received < count:
        messages = consumer.consume(10_000, timeout=STALL_S)
        if not messages:
            raise RuntimeError(f"no message for {STALL_S} s, {received} of {count} received")
        received += len(messages)
        size += sum(map(len, messages))
    seconds = time.perf_counter() - began
    consumer.close()
    return {"seconds": seconds, "messages": received, "bytes": size}


if __name__ == "__main__":
    drive(consume)
