"""Planted bugs of views: each hides a record, shows a wrong one, stops a reader or wakes it in vain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.records.control import build_skipped_range
from penstock.replication.projected_log import ProjectedLog
from penstock.replication.projections import Projections
from penstock.storage.aborted_transactions import AbortedTransactions
from penstock.storage.log_view import LogView
from penstock.storage.projection import reading


@planted_in_cluster("view", "I5", needs={"views"})
def a_skipped_range_is_one_offset_short() -> AbstractContextManager[Any]:
    """A range without matches ends before its last offset, and the next batch begins behind that."""

    def short(first: int, last: int, epoch: int) -> bytearray:
        return build_skipped_range(first, max(first, last - 1), epoch)

    return patch.object(reading, "build_skipped_range", short)


@planted_in_cluster("I8", needs={"views"})
def a_skipped_range_goes_beyond_the_high_watermark() -> AbstractContextManager[Any]:
    """A range without matches ends one offset too late."""

    def long(first: int, last: int, epoch: int) -> bytearray:
        return build_skipped_range(first, last + 1, epoch)

    return patch.object(reading, "build_skipped_range", long)


@planted_in_cluster("view", "I8", needs={"views"})
def a_view_shows_what_is_not_committed() -> AbstractContextManager[Any]:
    """A view shows records above the high watermark, which may be replaced."""
    first = reading.read_projected

    def beyond(index: Any, view: LogView, epochs: Any, query: Any, is_over: Any) -> Any:
        return first(index, view, epochs, query._replace(below=view.log_end_offset), is_over)

    return patch("penstock.replication.projected_log.read_projected", beyond)


@planted_in_cluster("view", needs={"views"})
def matches_of_the_old_filter_stay() -> AbstractContextManager[Any]:
    """A view whose filter was changed keeps the index of the old filter."""

    def get(self: Projections, projection: Any) -> ProjectedLog:
        present = self._logs.get(projection.topic_id)
        if present is None:
            selector = projection.make(self._log.topic_partition.partition)
            present = ProjectedLog(self._log, self._waiters, self._slots, selector)
            self._logs[projection.topic_id] = present
        return present

    @contextmanager
    def planted() -> Iterator[None]:
        with patch.object(Projections, "get", get), patch.object(Projections, "drop", lambda *_: None):
            yield

    return planted()


@planted_in_cluster("I6", needs={"transactions of views"})
def aborted_transactions_are_not_passed_on() -> AbstractContextManager[Any]:
    """Readers of committed records get no list of aborted transactions with a view."""
    whole = reading.read_projected

    def without(index: Any, view: LogView, epochs: Any, query: Any, is_over: Any) -> Any:
        with patch.object(AbortedTransactions, "between", lambda *_: []):
            return whole(index, view, epochs, query, is_over)

    return patch("penstock.replication.projected_log.read_projected", without)


@planted_in_cluster("view wait", needs={"views"})
def every_append_ends_the_long_poll_of_a_view() -> AbstractContextManager[Any]:
    """Records that do not match wake the readers of a view, and the response has only a skipped range."""
    return patch("penstock.server.projected_fetch.ProjectedFetchOperation._must_respond", lambda *_: True)
