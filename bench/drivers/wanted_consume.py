"""A confluent-kafka consumer that reads up to the end and counts the messages of one region, and the bytes received."""

from __future__ import annotations

import json
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from bench.driver import Figures, drive

STALL_S = 60
_WANTED = ("region", b"eu")
_FILL_S = 0.01
"""Time in seconds that a call waits for its batch of messages to fill up."""


def wanted_consume(bootstrap: str, topic: str, partitions: int, is_view: bool) -> Figures:
    """Seconds from the assignment to the end of all partitions. A view has wanted messages only."""
    received: list[int] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 262_144,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 5,  # the end of a view without a match is sent when the wait is over
            "statistics.interval.ms": 200,
            "stats_cb": lambda text: received.append(json.loads(text)["rx_bytes"]),
        }
    )
    consumer.list_topics(topic, timeout=30)
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    wanted = ended = 0
    arrived = began
    while ended < partitions:
        messages = consumer.consume(10_000, timeout=_FILL_S)
        if messages:
            arrived = time.perf_counter()
        elif time.perf_counter() - arrived > STALL_S:
            raise RuntimeError(f"no message for {STALL_S} s, {wanted} received")
        for message in messages:
            error = message.error()
            if error is None:
                wanted += is_view or _WANTED in (message.headers() or ())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            else:
                raise RuntimeError(str(error))
    seconds = time.perf_counter() - began
    _await_reports(consumer, received)
    consumer.close()
    return {"seconds": seconds, "messages": wanted, "rx_bytes": received[-1], "per_s": wanted / seconds}


def _await_reports(consumer: Consumer, received: list[int]) -> None:
    """Wait for statistics that were made after the last message."""
    wanted = len(received) + 2
    while len(received) < wanted:
        consumer.poll(0.1)


if __name__ == "__main__":
    drive(wanted_consume)
