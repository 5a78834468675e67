"""Reading the delayed messages of a log: their events from an offset on, and the records of messages that are due.

Waits for the disk: runs in a thread pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.delay.delivery_batches import StoredMessage
from penstock.delay.events import Event, events_of
from penstock.delay.packing import DueMessage
from penstock.delay.segment_events import SegmentEvents
from penstock.errors import BrokerError, CorruptLog, StorageError
from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE, LOG_APPEND_TIME_FLAG, BatchHeader, crc_matches
from penstock.records.compression import Codec, decompress
from penstock.records.iteration import Record, read_batches, record_timestamp
from penstock.records.walking import Layout, layouts, read_headers
from penstock.storage.delay_files import read_delay_file
from penstock.storage.log import Log
from penstock.storage.reading import floor_segment
from penstock.storage.segment import DELAYS_SUFFIX

_SCAN_BYTES = 256 * 1024
_WINDOW = 64
"""Number of messages that are read together, so that messages of one batch are read with one read of the batch."""


class ScannedEvents(NamedTuple):
    events: list[Event]
    end_offset: Offset
    """Offset below which the log was read."""
    filed: SegmentEvents | None = None
    """Events of a segment, read from its file; to be applied before `events`."""


class NotCommitted(NamedTuple):
    """Result of `scan_next` if the file of the next segment covers records that are not committed yet."""

    end_offset: Offset
    """Offset that the high watermark has to reach before the file can be used."""


def scan_next(
    log: Log, offset: Offset, applied: Offset | None, below: Offset, epoch_start: Offset
) -> ScannedEvents | NotCommitted:
    """Events from `offset` on: read from the segment's file if none of its records was applied yet, else by `scan`.

    `applied` is the offset below which records were applied, None before the first record. All records below
    `epoch_start` get committed unless this leader is replaced, so that waiting for them is safe.
    """
    segments = log.segments
    segment = segments[max(0, floor_segment(segments, offset))]
    if DELAYS_SUFFIX in segment.derived and (applied is None or applied <= segment.base_offset):
        filed = read_delay_file(log.files.disk, segment)
        if filed is not None and offset < filed.covered.end_offset <= below:
            return ScannedEvents([], filed.covered.end_offset, filed.events)
        if filed is not None and below < filed.covered.end_offset <= epoch_start:
            return NotCommitted(filed.covered.end_offset)
    return scan(log, offset, below)


def scan(log: Log, offset: Offset, below: Offset) -> ScannedEvents:
    """Events of the next batches, read from the log. CorruptLog or StorageError if the first batch cannot be read."""
    found = log.read(offset, _SCAN_BYTES, below=below, at_least_one=True, wait=True)
    events: list[Event] = []
    end = offset
    for header, batch in read_batches(memoryview(found.read())):
        if not crc_matches(batch, header):
            if end == offset:
                raise CorruptLog(
                    f"{log.topic_partition}: the batch at offset {header.base_offset} is damaged"
                )
            return ScannedEvents(events, end)
        events += events_of(batch, header, log.config.max_decompressed_bytes)
        end = header.next_offset
    return ScannedEvents(events, end if end > offset else below)


class WantedMessage(NamedTuple):
    due: DueMessage
    offset: int
    """Offset of the record that contains the message."""


@dataclass(slots=True)
class ReadMessages:
    stored: list[StoredMessage] = field(default_factory=list)
    unreadable: list[WantedMessage] = field(default_factory=list)
    """Messages whose record is damaged or was deleted."""
    left: list[WantedMessage] = field(default_factory=list)
    """The remaining messages, which were not read because `max_bytes` was reached."""


def read_messages(
    log: Log, wanted: Sequence[WantedMessage], below: Offset, max_bytes: int = 0
) -> ReadMessages:
    """Read the records of messages in the order of `wanted`. Stop after the window of messages in which the values
    reach `max_bytes`.
    """
    read = ReadMessages()
    reader = _Reader(log, below)
    size = 0
    for start in range(0, len(wanted), _WINDOW):
        if start and size >= max_bytes:
            read.left = list(wanted[start:])
            break
        window = wanted[start : start + _WINDOW]
        found = reader.read(window)
        read.unreadable += (each for each in window if each.offset not in found)
        stored = [found[each.offset] for each in window if each.offset in found]
        size += sum(len(each.record.value or b"") for each in stored)
        read.stored += stored
    return read


class _Reader:
    """Reader of records by offset. It keeps the last batch decompressed, because due messages often share a batch."""

    def __init__(self, log: Log, below: Offset) -> None:
        self._log = log
        self._below = below
        self._batch: _OpenBatch | None = None

    def read(self, wanted: Sequence[WantedMessage]) -> dict[int, StoredMessage]:
        """Read each batch once; return records by offset. Records that cannot be read are missing in the result."""
        found: dict[int, StoredMessage] = {}
        for each in sorted(wanted, key=lambda one: one.offset):
            try:
                batch = self._batch
                if batch is None or not batch.header.base_offset <= each.offset <= batch.header.last_offset:
                    self._batch = batch = self._open(each.offset)
                found[each.offset] = StoredMessage(each.due, batch.record(each.offset), batch.codec)
            except (BrokerError, CorruptLog, StorageError, OSError):
                continue
        return found

    def _open(self, offset: int) -> _OpenBatch:
        log = self._log
        content = log.read(Offset(offset), 1, below=self._below, at_least_one=True, wait=True).read()
        for header, batch in read_batches(memoryview(content)):
            if crc_matches(batch, header) and header.base_offset <= offset <= header.last_offset:
                return _OpenBatch(batch, header, log.config.max_decompressed_bytes)
        raise CorruptLog(f"{log.topic_partition}: the batch at offset {offset} is damaged")


class _OpenBatch:
    """A decompressed batch. Records are found fastest if they are read in the order of offsets."""

    def __init__(self, batch: memoryview, header: BatchHeader, max_decompressed_bytes: int) -> None:
        self.header = header
        self.codec = Codec(header.codec)
        self._body = bytes(decompress(header.codec, batch[HEADER_SIZE : header.size], max_decompressed_bytes))
        self._layouts: Iterator[Layout] = iter(())
        self._next_delta = header.last_offset_delta + 1
        """Records from this offset delta on are still ahead of the iteration."""

    def record(self, offset: int) -> Record:
        """The record with an offset; CorruptLog if it is not there, InvalidBatch if the records are not valid."""
        header, body, delta = self.header, self._body, offset - self.header.base_offset
        if delta < self._next_delta:
            self._layouts = layouts(body, header.record_count)
        for _, _, time_delta, found, key, key_length, value, value_length, headers, count in self._layouts:
            if found == delta:
                self._next_delta = delta + 1
                has_append_time = header.attributes & LOG_APPEND_TIME_FLAG
                return Record(
                    offset,
                    header.max_timestamp if has_append_time else record_timestamp(header, time_delta),
                    None if key_length < 0 else body[key : key + key_length],
                    None if value_length < 0 else body[value : value + value_length],
                    read_headers(body, headers, count),
                )
        self._next_delta = header.last_offset_delta + 1
        raise CorruptLog(f"offset {offset} is not in its batch")
