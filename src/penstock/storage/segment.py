"""One segment of a log: a file of record batches, named after its first offset, and its index.

Only the newest segment of a log is written. The loop thread updates `size`, `max_timestamp` and the index after the
bytes were written; any thread may read up to the bounds that its caller passes. The file of a segment that was closed
before the broker started is opened when a reader needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from penstock.errors import CorruptLog, WouldBlock
from penstock.model import Offset
from penstock.records.batch import LENGTH_OVERHEAD, BatchHeader
from penstock.storage.batch_scan import find_batch, scan_batches
from penstock.storage.disk import Disk, File
from penstock.storage.file_cache import CachedFile, FileCache
from penstock.storage.index import (
    ENTRY_SIZE,
    FIRST_ENTRY,
    MAX_TIMESTAMP,
    POSITION,
    RELATIVE_OFFSET,
    IndexDamaged,
    IndexEntry,
    SegmentIndex,
    encode_entries,
)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
KEYS_SUFFIX = ".keys"
MATCHES_SUFFIX = ".matches"
DELAYS_SUFFIX = ".delays"
DERIVED_SUFFIXES = (KEYS_SUFFIX, MATCHES_SUFFIX, DELAYS_SUFFIX)
"""Suffixes of files of derived indexes (`derived`). A name may have another part before: `<base>.<part>.matches`."""
NO_TIMESTAMP = -1
UNKNOWN_TIMESTAMP = -2
REBUILT_INTERVAL_BYTES = 4096
UNREACHABLE_OFFSET = 2**32 - 1
"""Relative offset of the last index entry of a segment that ends in damage: no lookup reaches it, so that no reader
skips the damage.
"""


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment:
    __slots__ = (
        "base_offset",
        "created_ms",
        "derived",
        "index",
        "indexed_size",
        "log_file",
        "max_timestamp",
        "size",
        "synced_size",
        "writer",
    )

    def __init__(
        self,
        files: FileCache,
        directory: str,
        base_offset: int,
        *,
        size: int = 0,
        max_timestamp: int = NO_TIMESTAMP,
        created_ms: int = 0,
        stored_entries: int | None = 0,
        derived: frozenset[str] = frozenset(),
    ) -> None:
        path = f"{directory}/{segment_name(base_offset)}"
        self.base_offset = base_offset
        self.log_file = CachedFile(files, path + LOG_SUFFIX)
        self.index = SegmentIndex(base_offset, CachedFile(files, path + INDEX_SUFFIX), stored_entries)
        self.size = size
        self.synced_size = size
        self.indexed_size = size
        """Position of the last index entry, from which the distance to the next entry is measured."""
        self.max_timestamp = max_timestamp
        """Greatest timestamp; UNKNOWN_TIMESTAMP for a closed segment whose index was not read yet."""
        self.created_ms = created_ms
        """Time in milliseconds at which the first batch was appended."""
        self.derived = derived
        """Suffixes of the derived index files that exist for this segment, valid or not."""
        self.writer: File | None = None
        """The log file while it has unsynced bytes, so that it stays open; else None."""

    @property
    def file(self) -> File:
        return self.writer or self.log_file.get()

    def add_index_entry(self, offset: int, position: int) -> None:
        """Add an index entry for the batch at `position`. Call this before `max_timestamp` includes the batch."""
        self.index.add(offset - self.base_offset, position, self.max_timestamp)
        self.indexed_size = position

    def derived_path(self, suffix: str) -> str:
        return self.log_file.path.removesuffix(LOG_SUFFIX) + suffix

    def remove_files(self, disk: Disk) -> None:
        """Remove all files of the segment, the log last: other files without a log are recognised as leftovers."""
        self.remove_derived(disk)
        disk.remove(self.index.file.path)
        disk.remove(self.log_file.path)

    def remove_derived(self, disk: Disk) -> None:
        """Remove the files of all derived indexes."""
        for suffix in self.derived:
            disk.remove(self.derived_path(suffix))
            self.derived -= {suffix}

    def locate(self, offset: int, end: int, wait: bool) -> tuple[int, BatchHeader | None]:
        """Position and header of the first batch in [0, end) that contains `offset` or a later offset.

        (end, None) if there is none. CorruptLog if `offset` may be in damaged bytes; damage before it is skipped.
        """
        start = self.find(RELATIVE_OFFSET, offset - self.base_offset + 1, wait)
        while True:
            try:
                for position, header in self.walk(end, start, wait=wait):
                    next_offset = header.base_offset + header.last_offset_delta + 1
                    if next_offset > offset:
                        return position, header
                    start = IndexEntry(
                        next_offset - self.base_offset,
                        position + header.batch_length + LENGTH_OVERHEAD,
                        NO_TIMESTAMP,
                    )
                return end, None
            except CorruptLog:
                if not wait:
                    raise WouldBlock from None
                after = self.after_damage(start, end)
                if after is None or self.base_offset + after.relative_offset > offset:
                    raise
                start = after

    def boundary_before(self, offset: Offset) -> tuple[int, Offset]:
        """Position at which to truncate in order to remove `offset` and all later offsets, and the log end after that.

        The log end is the end of the last remaining batch even if a gap follows it, because no file would tell the next
        start that the log ended within the gap. Waits for the disk.
        """
        start = self.find(RELATIVE_OFFSET, offset - self.base_offset + 1, wait=True)
        while True:
            end = None
            with suppress(CorruptLog):
                for position, header in self.walk(self.size, start, wait=True):
                    if header.next_offset > offset:
                        break
                    end = position + header.size, header.next_offset
            if end is not None or start.position == 0:
                return end or (0, Offset(self.base_offset))
            start = self.find(POSITION, start.position, wait=True)

    def after_damage(self, damage: IndexEntry, end: int) -> IndexEntry | None:
        """Index entry of the first valid batch after `damage`, the entry at which damage begins; None without one."""
        found = find_batch(
            self.file,
            damage.position,
            end,
            base_offset=self.base_offset,
            min_offset=self.base_offset + damage.relative_offset,
        )
        if found is None:
            return None
        position, header = found
        return IndexEntry(header.base_offset - self.base_offset, position, damage.max_timestamp)

    def header_at(self, position: int, wait: bool) -> BatchHeader:
        _, header = next(self.walk(self.size, IndexEntry(0, position, NO_TIMESTAMP), wait=wait))
        return header

    def walk(
        self, end: int, start: IndexEntry = FIRST_ENTRY, *, wait: bool
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from the index entry `start` up to the position `end`. Without any, the file is not opened."""
        if start.position >= end:
            return iter(())
        return scan_batches(
            self.file,
            start.position,
            end,
            base_offset=self.base_offset,
            min_offset=self.base_offset + start.relative_offset,
            wait=wait,
        )

    def before_timestamp(self, timestamp: int, wait: bool) -> IndexEntry:
        """The last index entry before which all batches are older than `timestamp`."""
        return self.find(MAX_TIMESTAMP, timestamp, wait)

    def newest_timestamp(self, wait: bool) -> int:
        """The greatest timestamp of any batch; -1 if no batch has a timestamp."""
        while self.max_timestamp == UNKNOWN_TIMESTAMP:
            try:
                self._learn_end(wait)
            except IndexDamaged:
                self._rebuild_index(wait)
        return self.max_timestamp

    def close(self, end_offset: int) -> None:
        """Complete the index of a full segment; batches are then appended to the next one."""
        self.index.add(end_offset - self.base_offset, self.size, self.max_timestamp)

    def truncate(self, position: int, disk: Disk) -> None:
        """Remove all batches from `position` on, which is a batch boundary. Waits for the disk."""
        while True:
            try:
                self.index.truncate(position)
                last = self.index.last(wait=True)
                break
            except IndexDamaged:
                self._rebuild_index(wait=True)
        self.trim_index(disk)
        self.remove_derived(disk)
        self.file.truncate(position)
        self.file.sync()
        self.size = position
        self.synced_size = min(self.synced_size, position)
        newer = (header.max_timestamp for _, header in self.walk(position, last, wait=True))
        self.max_timestamp = max(last.max_timestamp, max(newer, default=NO_TIMESTAMP))
        self.indexed_size = last.position

    def indexed_end(self) -> IndexEntry | None:
        """The end of the segment, if its index is complete. Waits for the disk.

        The index was then completed by a checkpoint, after the log was synced, or by compaction.
        """
        try:
            last = self.index.last(wait=True)
        except IndexDamaged:
            return None
        return last if self.index.stored and last.position == self.size else None

    def trim_index(self, disk: Disk) -> None:
        """Truncate the index file to `index.stored` entries. This is done before the log is truncated, because an index
        entry at the end of the log would mean that the segment is complete.
        """
        index = self.index
        if index.repaired is not None or not index.stored:
            index.file.discard()
            disk.remove(index.file.path)
            return
        with suppress(FileNotFoundError):
            file = index.file.get()
            file.truncate(index.stored * ENTRY_SIZE)
            file.sync()

    def find(self, field: int, limit: int, wait: bool) -> IndexEntry:
        """The last index entry whose `field` is below `limit`."""
        while True:
            try:
                if self.index.stored is None:
                    self._learn_end(wait)
                return self.index.find(field, limit, wait)
            except IndexDamaged:
                self._rebuild_index(wait)

    def _learn_end(self, wait: bool) -> None:
        """Read `max_timestamp` from the last index entry; IndexDamaged if the index is not complete."""
        last = self.index.last(wait)
        if last.position != self.size:
            raise IndexDamaged
        self.max_timestamp = last.max_timestamp

    def _rebuild_index(self, wait: bool) -> None:
        """Rebuild the stored part of the index from the batches."""
        if not wait:
            raise WouldBlock
        end = self.index.unsaved_from
        if end is None:
            end = self.size
        self.index.repair(encode_entries(self.base_offset, self._boundaries(end)))

    def _boundaries(self, end: int) -> Iterator[IndexEntry]:
        """The index entries for [0, end): one every few kilobytes, one on each side of damage, and one at the end."""
        here, indexed = FIRST_ENTRY, 0
        while here.position < end:
            try:
                for position, header in self.walk(end, here, wait=True):
                    if position - indexed >= REBUILT_INTERVAL_BYTES:
                        yield here
                        indexed = position
                    here = IndexEntry(
                        header.next_offset - self.base_offset,
                        position + header.size,
                        max(here.max_timestamp, header.max_timestamp),
                    )
            except CorruptLog:
                yield here
                after = self.after_damage(here, end)
                if after is None:
                    yield IndexEntry(UNREACHABLE_OFFSET, end, here.max_timestamp)
                    return
                yield after
                here, indexed = after, after.position
        yield here
