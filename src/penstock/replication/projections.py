"""Views of a replica that were read here. Loop thread only."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.model import TopicId
from penstock.replication.projected_log import ProjectedLog, ScanSlots
from penstock.replication.waiting import DataWaiters
from penstock.storage.log import Log


class Projections:
    def __init__(self, log: Log, waiters: DataWaiters, slots: ScanSlots) -> None:
        self._log = log
        self._waiters = waiters
        self._slots = slots
        self._logs: dict[TopicId, ProjectedLog] = {}

    def __iter__(self) -> Iterator[ProjectedLog]:
        return iter(tuple(self._logs.values()))

    def get(self, view: TopicId, text: str) -> ProjectedLog:
        """The log as readers of a view with this filter see it; ConfigError if the filter is not valid here."""
        present = self._logs.get(view)
        if present is None or present.text != text:
            self.drop(view)
            present = self._logs[view] = ProjectedLog(self._log, self._waiters, self._slots, text)
        return present

    def drop(self, view: TopicId) -> None:
        """Forget a view that was deleted or has another filter."""
        present = self._logs.pop(view, None)
        if present is not None:
            present.retire()
