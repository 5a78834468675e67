"""Reading a log: slices of its segments, and offsets by time.

All methods may run in a thread pool while the loop thread appends, deletes and compacts (see `Log`). A read that fails
because segments were replaced meanwhile is repeated on the new segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import CorruptLog, StorageError
from penstock.model import Offset
from penstock.records.control import AbortedTransaction
from penstock.records.log_slice import EMPTY_SLICE, LogSlice
from penstock.storage.damage import DamagedRange, next_damage
from penstock.storage.reading import Found, end_offset, read_slice
from penstock.storage.segment import Segment
from penstock.storage.time_lookup import TimestampOffset, find_newest, find_timestamp

if TYPE_CHECKING:
    from penstock.storage.log import Log


class LogReader:
    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    def read(
        self, offset: Offset, max_bytes: int, *, below: Offset, at_least_one: bool, wait: bool = False
    ) -> LogSlice:
        """Read batches from the batch with `offset` on, none at or above `below`. `max_bytes` may cut the last batch.

        The first batch is always complete. If it exceeds `max_bytes`, it is returned only with `at_least_one`; without
        it the slice is empty. After WouldBlock the caller has to repeat the read in a thread pool with `wait`.
        """
        found = self._find(offset, max_bytes, below, at_least_one, wait)
        return EMPTY_SLICE if found is None else found.records

    def read_committed(
        self, offset: Offset, max_bytes: int, *, below: Offset, at_least_one: bool, wait: bool = False
    ) -> tuple[LogSlice, list[AbortedTransaction]]:
        """Read as `read` does; `below` is a last stable offset. Also return the aborted transactions to skip."""
        aborted = (
            self._log.producers.aborted
        )  # taken before the bytes are located, so that it covers all of them
        found = self._find(offset, max_bytes, below, at_least_one, wait)
        if found is None:
            return EMPTY_SLICE, []
        if not aborted.reaches(offset):
            return found.records, []
        return found.records, aborted.between(offset, end_offset(found, below, wait))

    def _find(
        self, offset: Offset, max_bytes: int, below: Offset, at_least_one: bool, wait: bool
    ) -> Found | None:
        log = self._log
        while True:
            # In this order: the segments then contain all batches up to the log end, and if the log start is checked
            # last, the segments still contain the offset.
            log_end_offset = log.log_end_offset
            segments = log.segment_list.all
            if not log.log_start_offset <= offset <= log_end_offset:
                raise log.out_of_range(offset)
            limit = min(below, log_end_offset)
            if offset >= limit or (max_bytes <= 0 and not at_least_one):
                return None
            damaged = next_damage(log.damage, offset) if log.damage else None
            try:
                if damaged is None or damaged.base_offset >= limit:
                    return read_slice(log, segments, offset, max_bytes, limit, at_least_one, wait)
                return self._find_before(damaged, segments, offset, max_bytes, at_least_one, wait)
            except (CorruptLog, OSError) as error:
                self._check_unchanged(segments, error)

    def _find_before(
        self,
        damaged: DamagedRange,
        segments: tuple[Segment, ...],
        offset: Offset,
        max_bytes: int,
        at_least_one: bool,
        wait: bool,
    ) -> Found | None:
        """Batches below a damaged range; CorruptLog if no batch lies between `offset` and the range."""
        log, end = self._log, damaged.base_offset
        if offset < end:
            found = read_slice(log, segments, offset, max_bytes, end, at_least_one, wait)
            if found is not None or (
                not at_least_one and read_slice(log, segments, offset, 1, end, True, wait) is not None
            ):
                return found
        raise CorruptLog(f"{log.topic_partition}: {damaged}")

    def find_timestamp(self, timestamp: int, below: Offset) -> TimestampOffset | None:
        """The first record whose timestamp is at or after `timestamp`. Waits for the disk: for a thread pool."""
        while True:
            segments = self._log.segment_list.all
            try:
                return find_timestamp(segments, timestamp, self._log.log_start_offset, below)
            except (CorruptLog, OSError) as error:
                self._check_unchanged(segments, error)

    def max_timestamp(self, below: Offset | None = None) -> TimestampOffset | None:
        """The first record with the greatest timestamp (ListOffsets -3). Waits for the disk: for a thread pool."""
        while True:
            segments = self._log.segment_list.all
            try:
                end_offset = self._log.log_end_offset
                below = end_offset if below is None else below
                return find_newest(segments, self._log.log_start_offset, below, end_offset)
            except (CorruptLog, OSError) as error:
                self._check_unchanged(segments, error)

    def _check_unchanged(self, segments: tuple[Segment, ...], error: CorruptLog | OSError) -> None:
        """Raise the error of a read, unless segments were replaced or truncated during the read."""
        if self._log.segment_list.all is segments:
            if isinstance(error, CorruptLog):
                raise error
            raise StorageError(
                f"the log of {self._log.topic_partition} could not be read: {error}"
            ) from error
