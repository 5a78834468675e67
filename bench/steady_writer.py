"""A producer that writes to every partition of a topic, and records when each partition accepts writes again.

Its settings are those of a client that notices the loss of a broker soon, the same for every cluster:
requests time out after a second, and metadata is refreshed twice a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

INTERVAL_S = 0.01
PATIENCE_S = 90.0
SETTINGS = {
    "acks": "all",
    "linger.ms": 0,
    "enable.idempotence": True,
    "request.timeout.ms": 1_000,
    "socket.timeout.ms": 1_000,
    "message.timeout.ms": 300_000,
    "topic.metadata.refresh.interval.ms": 500,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


class NotResumed(Exception):
    """A partition accepted no writes for too long."""


class SteadyWriter:
    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = Producer(SETTINGS | {"bootstrap.servers": bootstrap})
        self._topic = topic
        self._acknowledged = [0.0] * partitions
        """Send time of the newest acknowledged message of each partition."""
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.resumed(range(len(self._acknowledged)), time.perf_counter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def resumed(self, partitions: Iterable[int], since: float) -> float:
        """Seconds until each of the partitions has acknowledged a write that was sent after `since`."""
        wanted = list(partitions)
        with self._changed:
            if not self._changed.wait_for(
                lambda: all(self._acknowledged[each] > since for each in wanted), PATIENCE_S
            ):
                raise NotResumed(f"no writes for {PATIENCE_S:.0f} s; errors: {self.errors[:3]}")
            return time.perf_counter() - since

    def _run(self) -> None:
        while not self._stop.is_set():
            for partition in range(len(self._acknowledged)):
                self._send(partition)
            self._producer.poll(INTERVAL_S)
        self._producer.flush(PATIENCE_S)

    def _send(self, partition: int) -> None:
        sent = time.perf_counter()

        def delivered(error: KafkaError | None, message: Message) -> None:
            with self._changed:
                if error is not None:
                    self.errors.append(str(error))
                self._acknowledged[partition] = max(self._acknowledged[partition], 0.0 if error else sent)
                self._changed.notify_all()

        self._producer.produce(self._topic, b"w" * 100, partition=partition, on_delivery=delivered)
