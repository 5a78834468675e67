"""A confluent-kafka producer of messages with a region in a header and in a JSON value; one in a hundred is wanted."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from bench.driver import Figures, drive
from bench.payload import random_values

ONE_IN = 100
FLUSH_TIMEOUT_S = 120
_QUEUED = 100_000


def marked_produce(bootstrap: str, topic: str, count: int, size: int, as_json: bool, codec: str) -> Figures:
    """Write the messages; `as_json` makes their values documents with a few fields."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "linger.ms": 5,
        "compression.type": codec,
        "queue.buffering.max.messages": 2 * _QUEUED,
        "delivery.report.only.error": True,
    }
    producer = Producer(settings)
    plain = random_values(size)
    for number in range(count):
        region = "eu" if number % ONE_IN == 0 else "us"
        value = _document(number, region, size) if as_json else plain[number % len(plain)]
        producer.produce(topic, value, headers=[("region", region.encode())], on_delivery=_refuse_errors)
        if number % 1_000 == 0:
            while len(producer) > _QUEUED:
                producer.poll(0.01)
    left = producer.flush(FLUSH_TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} messages were not acknowledged")
    return {"messages": count}


def _document(number: int, region: str, size: int) -> bytes:
    content = {
        "id": number,
        "user": {"name": f"user {number % 977}", "region": region},
        "total": number % 500,
    }
    return json.dumps(content | {"note": "x" * max(0, size - 110)}).encode()


def _refuse_errors(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise RuntimeError(f"delivery failed: {error}")


if __name__ == "__main__":
    drive(marked_produce)
