"""Confluent-kafka producers that wait for each acknowledgement, beside a producer over its quota."""

from __future__ import annotations

import random
import threading
import time

from confluent_kafka import Producer

from bench.driver import Figures, drive
from bench.measure import percentile
from bench.payload import random_values

STALL_S = 30
WARM_UP = 20


def quota_victims(
    bootstrap: str, topic: str, partitions: int, writers: int, seconds: float, messages_per_s: float
) -> Figures:
    """Latencies in milliseconds of producers that together send `messages_per_s`."""
    times: list[list[float]] = [[] for _ in range(writers)]
    threads = [
        threading.Thread(
            target=_write,
            args=(bootstrap, topic, number % partitions, seconds, writers / messages_per_s, times[number]),
        )
        for number in range(writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [each for one in times for each in one[WARM_UP:]]
    return {"p50_ms": percentile(found, 0.5), "p99_ms": percentile(found, 0.99), "messages": len(found)}


def _write(
    bootstrap: str, topic: str, partition: int, seconds: float, pause_s: float, times: list[float]
) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "client.id": "victim"}
    )
    producer.list_topics(topic, timeout=STALL_S)
    value, source = random_values(1_024)[0], random.Random(partition)
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        producer.produce(topic, value, partition=partition)
        if producer.flush(STALL_S):
            raise RuntimeError(f"no acknowledgement for {STALL_S} s")
        times.append((time.perf_counter() - began) * 1_000)
        time.sleep(pause_s * source.uniform(0.5, 1.5))


if __name__ == "__main__":
    drive(quota_victims)
