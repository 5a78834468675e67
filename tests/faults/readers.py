"""A group member that reads through crashes, and the invariants of the records and commits that it saw.

A record that was read is still stored at the same offset at the end. An acknowledged commit never moves
back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition
from history import MOST_SHOWN, Sent, Stored

COMMIT_EVERY = 200
PATIENCE_S = 60.0


class Reader:
    """A consumer in a thread."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.seen: dict[tuple[int, int], Sent] = {}
        self.committed: dict[int, int] = {}
        self.changed: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reader-of-{topic}", daemon=True)
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 45_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )

    def start(self) -> None:
        self._consumer.subscribe([self._topic])
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the reader does not end"

    def abandon(self) -> None:
        self._stopping.set()

    def violations(self, stored: Iterable[Stored]) -> list[str]:
        there = {(message.partition, message.offset): message.sent for message in stored}
        gone = [
            f"was shown {sent} at {place}, there is {there.get(place)}"
            for place, sent in self.seen.items()
            if there.get(place) != sent
        ]
        return [*self.changed, *gone[:MOST_SHOWN]]

    def _run(self) -> None:
        unread = COMMIT_EVERY
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            self._note(Stored(message.partition(), message.offset(), Sent.decode(message.value())))
            unread -= 1
            if not unread:
                unread = COMMIT_EVERY
                self._commit()
        self._consumer.close()

    def _note(self, message: Stored) -> None:
        place = (message.partition, message.offset)
        if self.seen.setdefault(place, message.sent) != message.sent:
            self.changed.append(f"was shown {message.sent} at {place}, before that {self.seen[place]}")

    def _commit(self) -> None:
        """A failed commit may have taken effect or not."""
        try:
            for place in self._consumer.commit(asynchronous=False):
                if place.error is None:
                    self.committed[place.partition] = max(
                        place.offset, self.committed.get(place.partition, 0)
                    )
        except KafkaException:
            return


def forgotten(bootstrap: str, group: str, topic: str, readers: Iterable[Reader]) -> list[str]:
    """Acknowledged commits that the group no longer has."""
    told: dict[int, int] = {}
    for reader in readers:
        for partition, offset in reader.committed.items():
            told[partition] = max(offset, told.get(partition, 0))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    asked = [TopicPartition(topic, partition) for partition in told]
    kept = {place.partition: place.offset for place in consumer.committed(asked, PATIENCE_S)} if asked else {}
    consumer.close()
    return [
        f"partition {partition}: {offset} was committed, the group knows {kept[partition]}"
        for partition, offset in told.items()
        if kept[partition] < offset
    ]
