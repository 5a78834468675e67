"""A share consumer that reads every partition of a topic, and records when each partition delivers again.

A delivery counts if its message was sent after the loss of a broker. The settings are those of a client that notices
the loss soon, as for `SteadyWriter`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from confluent_kafka import ShareConsumer

from bench.drivers.shares import configure
from bench.steady_writer import PATIENCE_S, NotResumed

POLL_S = 0.05
SETTINGS = {
    "share.acknowledgement.mode": "implicit",
    "socket.timeout.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 500,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


class SteadyShareReader:
    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str = "steady") -> None:
        configure(bootstrap, group)
        self._consumer = ShareConsumer(SETTINGS | {"bootstrap.servers": bootstrap, "group.id": group})
        self._topic = topic
        self._newest_ms = [0] * partitions
        """Timestamp of the newest message of each partition that was delivered, in epoch milliseconds."""
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        self.resumed(range(len(self._newest_ms)), time.perf_counter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def resumed(self, partitions: Iterable[int], since: float) -> float:
        """Seconds until each of the partitions has delivered a message that was sent after `since`."""
        wanted = list(partitions)
        since_ms = int((time.time() - (time.perf_counter() - since)) * 1000) + 1
        with self._changed:
            if not self._changed.wait_for(
                lambda: all(self._newest_ms[each] >= since_ms for each in wanted), PATIENCE_S
            ):
                raise NotResumed(f"no deliveries for {PATIENCE_S:.0f} s")
            return time.perf_counter() - since

    def _run(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self._stop.is_set():
            messages = [each for each in self._consumer.poll(POLL_S) if each.error() is None]
            with self._changed:
                for message in messages:
                    place = message.partition()
                    assert place is not None
                    self._newest_ms[place] = max(self._newest_ms[place], message.timestamp()[1])
                self._changed.notify_all()
