"""Projections of a replica that were read here. Loop thread only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.model import TopicId
from penstock.records.selecting import Selector
from penstock.replication.projected_log import ProjectedLog, ScanSlots
from penstock.replication.waiting import DataWaiters
from penstock.storage.log import Log


class Projection(NamedTuple):
    """View of a log that the readers of a topic see."""

    topic_id: TopicId
    """Id of the topic that readers name: the view, or the delay topic itself."""
    identity: bytes
    """Identity of the selector."""
    make: Callable[[int], Selector]
    """Makes the selector for a partition; ConfigError if that is not possible on this broker."""
    hides_expired: bool = False
    """True for views: a Fetch of any other topic returns expired records too."""


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
        """The projection of a topic, if it was read here."""
        return self._logs.get(topic_id)

    def get(self, projection: Projection) -> ProjectedLog:
        """The log as readers of a topic see it; ConfigError if this broker cannot select the records."""
        topic_id = projection.topic_id
        present = self._logs.get(topic_id)
        if present is None or present.identity != projection.identity:
            self.drop(topic_id)
            self._on_first_read()
            selector = projection.make(self._log.topic_partition.partition)
            present = self._logs[topic_id] = ProjectedLog(self._log, self._waiters, self._slots, selector)
        return present

    def drop_unread(self, seconds: float) -> None:
        """Forget projections that had no reader for a time: their memory is free, and their files stay."""
        for topic_id, projected in tuple(self._logs.items()):
            if not projected.is_read_within(seconds):
                self.drop(topic_id)

    def drop(self, topic_id: TopicId) -> None:
        """Forget the projection of a topic that was deleted or selects other records now."""
        present = self._logs.pop(topic_id, None)
        if present is not None:
            present.retire()
