"""A confluent-kafka producer at fixed rates, independent of the broker's speed: every value starts with its
due time.

Messages that the client holds back because the broker is slow count with that delay.
"""

from __future__ import annotations

import struct
import time
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from bench.driver import Figures, drive
from bench.payload import random_values

TICK_S = 0.002
FLUSH_TIMEOUT_S = 180


def paced_produce(bootstrap: str, topic: str, size: int, phases: list[tuple[float, float]]) -> Figures:
    """Produce in `phases` of (seconds, messages per second)."""
    errors: list[str] = []
    producer = _connected(bootstrap, topic, errors)
    filler = random_values(size)[0][8:]
    sent = 0
    began = phase_began = time.perf_counter()
    for seconds, messages_per_s in phases:
        phase_sent = 0
        for tick in range(round(seconds / TICK_S)):
            due = phase_began + tick * TICK_S
            while time.perf_counter() < due:
                producer.poll(max(0.0, due - time.perf_counter()))
            count = round((tick + 1) * TICK_S * messages_per_s) - phase_sent
            value = struct.pack(">q", int(due * 1e9)) + filler
            refused = count - producer.produce_batch(topic, [{"value": value} for _ in range(count)])
            errors += ["the queue of the client is full"] * refused
            phase_sent += count
        sent += phase_sent
        phase_began += seconds
    left = producer.flush(FLUSH_TIMEOUT_S)
    if errors:
        print(f"{len(errors)} errors, the first: {errors[0]}")
    return {"began": began, "messages": sent, "errors": len(errors), "unacknowledged": left}


def _connected(bootstrap: str, topic: str, errors: list[str]) -> Producer:
    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(str(error))

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "linger.ms": 5,
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 8 << 20,
        "delivery.report.only.error": True,
        "on_delivery": on_delivery,
    }
    producer = Producer(settings)
    producer.list_topics(topic, timeout=30)
    return producer


if __name__ == "__main__":
    drive(paced_produce)
