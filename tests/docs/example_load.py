"""Clients that write and read a topic during the examples, and check that no message is missing."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer

RATE = 300
PATIENCE_SECONDS = 20.0
REFRESH_MS = 500


class Load:
    """One producer and one group member, in threads."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._consume)]
        self.acknowledged: set[int] = set()
        self.read: set[int] = set()
        self.partitions_read: set[int] = set()
        self.errors: list[str] = []
        self.longest_pause_seconds = 0.0

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop writing, and return when all acknowledged messages were read, or when no more arrive."""
        self._is_over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _produce(self) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 1,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            "log_level": 0,
        }
        producer = Producer(settings)
        number = 0
        while not self._is_over.wait(1 / RATE):
            producer.produce(self._topic, f"load-{number}".encode(), on_delivery=self._delivered)
            producer.poll(0)
            number += 1
        if producer.flush(PATIENCE_SECONDS):
            self.errors.append("not everything was sent")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged.add(int((message.value() or b"").removeprefix(b"load-")))
            self.longest_pause_seconds = max(self.longest_pause_seconds, message.latency())

    def _consume(self) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "load",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        consumer.subscribe([self._topic])
        deadline = float("inf")
        while time.monotonic() < deadline and not self._has_read_all():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._note(message)
            if self._is_over.is_set() and deadline == float("inf"):
                deadline = time.monotonic() + PATIENCE_SECONDS
        consumer.close()

    def _note(self, message: Message) -> None:
        value = message.value() or b""
        if value.startswith(b"load-"):
            self.read.add(int(value.removeprefix(b"load-")))
            self.partitions_read.add(message.partition())

    def _has_read_all(self) -> bool:
        return self._is_over.is_set() and not self._threads[0].is_alive() and self.acknowledged <= self.read
