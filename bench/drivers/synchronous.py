"""A confluent-kafka producer that waits for each message's acknowledgement before it sends the next one."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, Message, Producer

from bench.client_security import client_security
from bench.driver import Figures, drive
from bench.measure import percentile
from bench.payload import random_values

WARM_UP = 300
STALL_S = 30


def synchronous(bootstrap: str, topic: str, count: int, size: int) -> Figures:
    """Latencies of `count` sends, in milliseconds."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "socket.nagle.disable": True,
            **client_security(),
        }
    )
    producer.list_topics(topic, timeout=30)
    values = random_values(size)
    times = [_send(producer, topic, values[i % len(values)]) for i in range(WARM_UP + count)][WARM_UP:]
    latency = {"p50_ms": percentile(times, 0.5), "p99_ms": percentile(times, 0.99)}
    return latency | {"messages": WARM_UP + count}


def _send(producer: Producer, topic: str, value: bytes) -> float:
    errors: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        errors.append(error)

    began = time.perf_counter()
    producer.produce(topic, value, on_delivery=delivered)
    while not errors:
        producer.poll(STALL_S)
        if time.perf_counter() - began > STALL_S:
            raise RuntimeError(f"no acknowledgement for {STALL_S} s")
    if errors[0] is not None:
        raise RuntimeError(f"delivery failed: {errors[0]}")
    return (time.perf_counter() - began) * 1_000


if __name__ == "__main__":
    drive(synchronous)
