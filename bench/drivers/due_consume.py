"""Delayed messages of one partition: a producer, and a consumer that measures how late they come."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.driver import Figures, drive
from bench.measure import percentile

STALL_S = 60
AHEAD_MS = 3_000
"""Time in milliseconds from the sending of a message to its due time."""


def due_consume(bootstrap: str, topic: str, count: int, per_s: float) -> Figures:
    """Lateness in milliseconds of `count` messages, `per_s` of them due in a second; 0: all in the same millisecond."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
        }
    )
    start = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    consumer.assign([TopicPartition(topic, 0, start)])
    consumer.consume(1, timeout=0.5)
    sending = threading.Thread(target=_send, args=(bootstrap, topic, count, per_s))
    sending.start()
    late_ms: list[float] = []
    arrived = time.monotonic()
    while len(late_ms) < count:
        for message in consumer.consume(1_000, timeout=0.001):
            late_ms.append(time.time() * 1_000 - message.timestamp()[1])
            arrived = time.monotonic()
        if time.monotonic() - arrived > STALL_S:
            raise RuntimeError(f"no message for {STALL_S} s, {len(late_ms)} of {count} received")
    sending.join()
    consumer.close()
    return {
        "p50_ms": percentile(late_ms, 0.5),
        "p99_ms": percentile(late_ms, 0.99),
        "first_ms": min(late_ms),
        "last_ms": max(late_ms),
    }


def _send(bootstrap: str, topic: str, count: int, per_s: float) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    due_ms = int(time.time() * 1_000) + AHEAD_MS + (count // 20 if not per_s else 0)
    began = time.perf_counter()
    for number in range(count):
        while per_s and number / per_s > time.perf_counter() - began:
            producer.poll(0.001)
        header = ("penstock-delay-ms", b"%d" % AHEAD_MS) if per_s else ("penstock-deliver-at", b"%d" % due_ms)
        producer.produce(topic, bytes(100), partition=0, headers=[header])
        producer.poll(0)
    if producer.flush(STALL_S):
        raise RuntimeError("not all messages were acknowledged")


if __name__ == "__main__":
    drive(due_consume)
