"""A log as readers see it: slices of its segments, offsets by time, and what of it is stable.

`read`, `find_timestamp` and `max_timestamp` may run in a pool while the loop thread appends, deletes and compacts (see
`Log`); one that fails because segments were replaced under it is made again on the new ones.
"""

from __future__ import annotations

from penstock.errors import BrokerError, CorruptLog, ErrorCode, StorageError
from penstock.model import Offset
from penstock.records.control import AbortedTransaction
from penstock.records.log_slice import EMPTY_SLICE, LogSlice
from penstock.storage.damage import DamagedRange, next_damage
from penstock.storage.reading import Found, end_offset, read_slice
from penstock.storage.segment import Segment
from penstock.storage.stored_log import StoredLog
from penstock.storage.time_lookup import TimestampOffset, find_newest, find_timestamp


class ServedLog(StoredLog):
    __slots__ = ()

    @property
    def last_stable_offset(self) -> Offset:
        """Below it every transaction has ended, and its marker is committed."""
        high_watermark = self.high_watermark
        first = self.producers.unstable.first(high_watermark)
        if first is None or first >= high_watermark:
            return high_watermark
        return max(Offset(first), self.log_start_offset)

    def aborted_transactions(self, from_offset: Offset, to_offset: Offset) -> list[AbortedTransaction]:
        """Those that a reader of [from_offset, to_offset) has to know; perhaps some that it has not."""
        return self.producers.aborted.between(from_offset, to_offset)

    def read(
        self, offset: Offset, max_bytes: int, *, below: Offset, at_least_one: bool, wait: bool = False
    ) -> LogSlice:
        """Batches from the one that has `offset` on, none at or above `below`; the last may be cut by
        `max_bytes`.

        The first comes whole if it must (`at_least_one`) or fits; else the slice is empty. WouldBlock asks to
        be called again in a pool with `wait`.
        """
        found = self._find(offset, max_bytes, below, at_least_one, wait)
        return EMPTY_SLICE if found is None else found.records

    def read_committed(
        self, offset: Offset, max_bytes: int, *, below: Offset, at_least_one: bool, wait: bool = False
    ) -> tuple[LogSlice, list[AbortedTransaction]]:
        """As `read`, below a last stable offset, and the aborted transactions that the reader has to leave out."""
        aborted = self.producers.aborted  # before the bytes are looked for: then it has all that they need
        found = self._find(offset, max_bytes, below, at_least_one, wait)
        if found is None:
            return EMPTY_SLICE, []
        if not aborted.reaches(offset):
            return found.records, []
        return found.records, aborted.between(offset, end_offset(found, below, wait))

    def _find(
        self, offset: Offset, max_bytes: int, below: Offset, at_least_one: bool, wait: bool
    ) -> Found | None:
        while True:
            # In this order: the segments then have all up to the end, and what the start does not exclude
            # afterwards had not been deleted from them.
            log_end_offset = self.log_end_offset
            segments = self._segments.all
            if not self.log_start_offset <= offset <= log_end_offset:
                raise self._out_of_range(offset)
            limit = min(below, log_end_offset)
            if offset >= limit or (max_bytes <= 0 and not at_least_one):
                return None
            damaged = next_damage(self._damage, offset) if self._damage else None
            try:
                if damaged is None or damaged.base_offset >= limit:
                    return read_slice(self, segments, offset, max_bytes, limit, at_least_one, wait)
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
        """Batches below a damaged range; CorruptLog where no batch lies between `offset` and the range."""
        end = damaged.base_offset
        if offset < end:
            found = read_slice(self, segments, offset, max_bytes, end, at_least_one, wait)
            if found is not None or (
                not at_least_one and read_slice(self, segments, offset, 1, end, True, wait) is not None
            ):
                return found
        raise CorruptLog(f"{self.topic_partition}: {damaged}")

    def find_timestamp(self, timestamp: int, below: Offset) -> TimestampOffset | None:
        """The first record at least as new as `timestamp`. Waits for the disk: for a pool."""
        while True:
            segments = self._segments.all
            try:
                return find_timestamp(segments, timestamp, self.log_start_offset, below)
            except (CorruptLog, OSError) as error:
                self._check_unchanged(segments, error)

    def max_timestamp(self, below: Offset | None = None) -> TimestampOffset | None:
        """The first of the newest records (ListOffsets -3). Waits for the disk: for a pool."""
        while True:
            segments = self._segments.all
            try:
                end_offset = self.log_end_offset
                below = end_offset if below is None else below
                return find_newest(segments, self.log_start_offset, below, end_offset)
            except (CorruptLog, OSError) as error:
                self._check_unchanged(segments, error)

    def _check_unchanged(self, segments: tuple[Segment, ...], error: CorruptLog | OSError) -> None:
        """A read in a pool that fails while segments are replaced or cut under it is tried again on the new
        ones."""
        if self._segments.all is segments:
            if isinstance(error, CorruptLog):
                raise error
            raise StorageError(f"{self.topic_partition} could not be read: {error}") from error

    def _out_of_range(self, offset: Offset) -> BrokerError:
        return BrokerError(
            ErrorCode.offset_out_of_range,
            f"{offset} is not in {self.log_start_offset} to {self.log_end_offset} of {self.topic_partition}",
        )
