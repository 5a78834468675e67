"""A confluent-kafka consumer of the messages of `paced_produce`: latency of each message."""

from __future__ import annotations

import struct
import time

from confluent_kafka import Consumer, TopicPartition

from bench.driver import Figures, drive
from bench.latencies import Latencies

AT_ONCE = 500
STALL_S = 60
STAMP = struct.Struct(">q")


def paced_consume(
    bootstrap: str,
    topic: str,
    partitions: int,
    count: int,
    windows: dict[str, tuple[int, int]],
    limit_ms: float,
) -> Figures:
    """Percentiles of each of the `windows`, in seconds since the first message, and the time when the last
    window settled.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    latencies = Latencies()
    left = count
    heard = time.perf_counter()
    while left > 0:
        first = consumer.poll(0.1)
        messages = [first, *consumer.consume(AT_ONCE, 0)] if first is not None else []
        now_ns = time.perf_counter_ns()
        for message in messages:
            if message.error():
                raise RuntimeError(f"reading failed: {message.error()}")
        latencies.arrived((STAMP.unpack_from(message.value())[0] for message in messages), now_ns)
        left -= len(messages)
        heard = now_ns / 1e9 if messages else heard
        if time.perf_counter() - heard > STALL_S:
            raise RuntimeError(f"{left} of {count} messages did not come within {STALL_S} s")
    consumer.close()
    figures: Figures = {}
    for name, (from_s, to_s) in windows.items():
        figures[f"{name}_p50_ms"] = latencies.percentile_ms(0.5, from_s, to_s)
        figures[f"{name}_p99_ms"] = latencies.percentile_ms(0.99, from_s, to_s)
        figures[f"{name}_settled_s"] = latencies.settled_s(from_s, to_s, limit_ms)
    return figures


if __name__ == "__main__":
    drive(paced_consume)
