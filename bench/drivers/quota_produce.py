"""A confluent-kafka producer that offers a fixed rate of bytes and measures the rate that is acknowledged."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, Message, Producer

from bench.driver import Figures, drive
from bench.payload import random_values

SIZE = 4_096
WARM_UP_S = 5.0
"""Time in seconds after which the burst that a quota allows is over."""


def quota_produce(bootstrap: str, topic: str, client_id: str, seconds: float, bytes_per_s: float) -> Figures:
    """Acknowledged bytes in a second, after the warm-up. Messages that the client cannot hold are dropped."""
    acknowledged = 0

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is None and began + WARM_UP_S <= time.perf_counter() < began + WARM_UP_S + seconds:
            acknowledged += SIZE

    # Small batches, since a quota is charged by whole requests.
    batches = {"linger.ms": 5, "batch.size": 65_536}
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client_id, "acks": "all", **batches})
    producer.list_topics(topic, timeout=30)
    value = random_values(SIZE)[0]
    began, sent = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < WARM_UP_S + seconds:
        if sent * SIZE < elapsed * bytes_per_s:
            try:
                producer.produce(topic, value, on_delivery=on_delivery)
            except BufferError:
                producer.poll(0.01)
            sent += 1
            producer.poll(0)
        else:
            producer.poll(0.002)
    producer.purge()
    producer.flush(5)
    return {"bytes_per_s": acknowledged / seconds, "offered_per_s": sent * SIZE / (WARM_UP_S + seconds)}


if __name__ == "__main__":
    drive(quota_produce)
