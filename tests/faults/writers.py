"""Idempotent producers that continue through crashes of the broker, and the final read of all records."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from history import History, Sent, Stored

CODECS = ("none", "lz4", "zstd", "snappy", "gzip")
MOST_QUEUED = 200
PATIENCE_S = 60.0


class Writer:
    """A producer in a thread, with its history."""

    def __init__(
        self, number: int, bootstrap: str, topic: str, partitions: int, interval_s: float = 0.0005
    ) -> None:
        self.history = History()
        self._number = number
        self._topic = topic
        self._partitions = partitions
        self._interval_s = interval_s
        self._random = random.Random(number)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer-{number}", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": CODECS[number % len(CODECS)],
                "linger.ms": number % 3,
                "batch.num.messages": 50,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and wait for all responses."""
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        left = self._producer.flush(PATIENCE_S)
        if left:
            self.history.refused.append(f"{left} messages of producer {self._number} were never answered")

    def abandon(self) -> None:
        """Stop sending, without waiting for responses."""
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        self._producer.purge()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            if len(self._producer) >= MOST_QUEUED:
                self._producer.poll(0.02)
                continue
            partition = self._random.randrange(self._partitions)
            self._send(Sent(self._number, partition, number))
            self._producer.poll(self._interval_s)
            number += 1

    def _send(self, sent: Sent) -> None:
        self.history.sent.add(sent)
        value = sent.encode(self._random.randbytes(self._random.randrange(2_000)))
        self._producer.produce(
            self._topic, value, partition=sent.partition, on_delivery=self._delivered(sent)
        )

    def _delivered(self, sent: Sent) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.history.refused.append(f"{sent}: {error}")
            else:
                offset = message.offset()
                self.history.acknowledged[sent] = -1 if offset is None else offset

        return report


def read_all(bootstrap: str, topic: str, partitions: int) -> Iterator[Stored]:
    """All stored messages up to the current log ends, in offset order within a partition."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0}
    )
    places = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)]
    ends = {place.partition: consumer.get_watermark_offsets(place, PATIENCE_S)[1] for place in places}
    left = {partition for partition, end in ends.items() if end}
    consumer.assign(places)
    deadline = time.monotonic() + PATIENCE_S
    while left:
        assert time.monotonic() < deadline, f"partitions {sorted(left)} could not be read to their ends"
        for message in consumer.consume(1_000, timeout=0.2):
            assert message.error() is None, message.error()
            yield Stored(message.partition(), message.offset(), Sent.decode(message.value()))
            if message.offset() >= ends[message.partition()] - 1:
                left.discard(message.partition())
    consumer.close()
