"""The projections of a replica that have readers on this broker. Loop thread only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.model import TopicId
from penstock.records.selecting import Selector
from penstock.replication.projected_log import ProjectedLog, ScanSlots
from penstock.replication.waiting import DataWaiters
from penstock.storage.log import Log


class Projection(NamedTuple):
    """Filtered form of a log, which the consumers of a topic read."""

    topic_id: TopicId
    """Id of the topic in the consumers' requests: the view, or the topic with delayed messages itself."""
    identity: bytes
    """Identity of the selector."""
    make: Callable[[int], Selector]
    """Function that makes the selector for a partition index; ConfigError if this broker cannot make it."""
    hides_expired: bool = False
    """True to leave out expired records, as for views; a Fetch of any other topic returns expired records too."""


class Projections:
    def __init__(
        self,
        log: Log,
        waiters: DataWaiters,
        slots: ScanSlots,
        on_first_read: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = log
        self._waiters = waiters
        self._slots = slots
        self._on_first_read = on_first_read
        self._logs: dict[TopicId, ProjectedLog] = {}

    def __iter__(self) -> Iterator[ProjectedLog]:
        return iter(tuple(self._logs.values()))

    def find(self, topic_id: TopicId) -> ProjectedLog | None:
        """The projection of a topic; None if it was not read here."""
        return self._logs.get(topic_id)

    def get(self, projection: Projection) -> ProjectedLog:
        """The projected log of a topic, made at its first use; ConfigError if this broker cannot make the selector."""
        topic_id = projection.topic_id
        present = self._logs.get(topic_id)
        if present is None or present.identity != projection.identity:
            self.drop(topic_id)
            self._on_first_read()
            selector = projection.make(self._log.topic_partition.partition)
            present = self._logs[topic_id] = ProjectedLog(self._log, self._waiters, self._slots, selector)
        return present

    def drop_unread(self, seconds: float) -> None:
        """Drop projections without a reader in the last `seconds`. This frees their memory; their files are kept."""
        for topic_id, projected in tuple(self._logs.items()):
            if not projected.is_read_within(seconds):
                self.drop(topic_id)

    def drop(self, topic_id: TopicId) -> None:
        """Drop the projection of a topic that was deleted or has another selector now."""
        present = self._logs.pop(topic_id, None)
        if present is not None:
            present.retire()
