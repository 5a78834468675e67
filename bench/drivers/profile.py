"""The Penstock client with one of its profiles: write rate, read rate, and latency of a message."""

from __future__ import annotations

import threading
import time
from typing import Literal

from bench.driver import Figures, drive
from bench.measure import percentile
from bench.payload import compressible_values
from penstock import Consumer, Producer

STALL_S = 30.0
WARM_UP = 100


def profile(
    bootstrap: str,
    topic: str,
    paced_topic: str,
    profile: Literal["throughput", "latency"],
    count: int,
    size: int,
    paced: int,
    messages_per_s: float,
) -> Figures:
    values = compressible_values(size)
    writing_s = _write(bootstrap, topic, profile, values, count)
    reading_s = _read(bootstrap, topic, profile, count)
    waits_ms = _paced(bootstrap, paced_topic, profile, values[0], paced, messages_per_s)
    return {
        "written_per_s": count / writing_s,
        "read_per_s": count / reading_s,
        "p50_ms": percentile(waits_ms, 0.5),
        "p99_ms": percentile(waits_ms, 0.99),
    }


def _write(
    bootstrap: str, topic: str, profile: Literal["throughput", "latency"], values: list[bytes], count: int
) -> float:
    with Producer(bootstrap, profile=profile) as producer:
        producer.send_and_wait(topic, values[0])
        began = time.perf_counter()
        for number in range(count - 1):
            producer.send(topic, values[number % len(values)])
        producer.flush()
        return time.perf_counter() - began


def _read(bootstrap: str, topic: str, profile: Literal["throughput", "latency"], count: int) -> float:
    with Consumer(topic, bootstrap=bootstrap, profile=profile, idle_timeout_s=STALL_S) as consumer:
        next(consumer)
        began = time.perf_counter()
        read = 1
        while read < count:
            read += len(consumer.batch(1_000, timeout_s=1))
        return time.perf_counter() - began


def _paced(
    bootstrap: str,
    topic: str,
    profile: Literal["throughput", "latency"],
    value: bytes,
    count: int,
    messages_per_s: float,
) -> list[float]:
    """Send messages at fixed times, and return milliseconds from send to read."""
    sent: list[float] = []
    waits_ms: list[float] = []

    def read() -> None:
        with Consumer(topic, bootstrap=bootstrap, profile=profile, idle_timeout_s=STALL_S) as consumer:
            for message in consumer:
                waits_ms.append((time.perf_counter() - sent[message.offset]) * 1_000)
                if len(waits_ms) == WARM_UP + count:
                    return

    reader = threading.Thread(target=read)
    with Producer(bootstrap, profile=profile) as producer:
        reader.start()
        began = time.perf_counter()
        for number in range(WARM_UP + count):
            time.sleep(max(0.0, began + number / messages_per_s - time.perf_counter()))
            sent.append(time.perf_counter())
            producer.send(topic, value)
    reader.join(STALL_S)
    if len(waits_ms) < WARM_UP + count:
        raise RuntimeError(f"{len(waits_ms)} of {WARM_UP + count} messages were read")
    return waits_ms[WARM_UP:]


if __name__ == "__main__":
    drive(profile)
