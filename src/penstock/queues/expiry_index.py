"""Expiry of records that no consumer asks for: sections of a partition's log with the earliest time of a record.

A section is read once, and again when its earliest time is over. Only sections with records that expire are kept, one
for each megabyte. Pure but for `read_section`, which runs in a pool.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.errors import PenstockError
from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE, BatchHeader
from penstock.records.compression import decompress
from penstock.records.expiry import expires_at, has_lifetime
from penstock.records.iteration import iterate, read_batches
from penstock.storage.log import Log

SECTION_BYTES: Final = 1 << 20
_MAX_DECOMPRESSED: Final = 256 << 20


class ExpirySection(NamedTuple):
    """Offsets whose records were read."""

    first: int
    last: int
    due_ms: int
    """Earliest time at which a record expires that had not expired when the section was read, in epoch milliseconds."""


class SectionContent(NamedTuple):
    """Content of a section."""

    next_offset: int
    expired: list[tuple[int, int]]
    """Offsets of expired records, neighbours in one range."""
    due_ms: int | None
    """Earliest time at which another record expires; None if none does."""


class ExpiryIndex:
    """Sections of one partition."""

    def __init__(self) -> None:
        self.next_offset = 0
        """Offset from which on nothing was read."""
        self._sections: list[ExpirySection] = []

    def __len__(self) -> int:
        return len(self._sections)

    def forget_below(self, offset: int) -> None:
        """Forget sections whose records are all settled."""
        self._sections = [each for each in self._sections if each.last >= offset]
        self.next_offset = max(self.next_offset, offset)

    def due(self, now_ms: int) -> list[ExpirySection]:
        return [each for each in self._sections if each.due_ms <= now_ms]

    def replace(self, section: ExpirySection, due_ms: int | None) -> None:
        """Note that a section was read again."""
        self._sections.remove(section)
        if due_ms is not None:
            self.add(section.first, section.last, due_ms)

    def add(self, first: int, last: int, due_ms: int) -> None:
        self._sections.append(ExpirySection(first, last, due_ms))


def read_section(log: Log, first: int, below: int, now_ms: int) -> SectionContent:
    """Read records from an offset on, up to the size of a section, in a thread."""
    first = max(first, log.log_start_offset)
    content = log.read(Offset(first), SECTION_BYTES, below=Offset(below), at_least_one=True, wait=True).read()
    next_offset, times = first, []
    for header, batch in read_batches(memoryview(content)):
        next_offset = header.next_offset
        times += [each for each in _times(header, batch) if first <= each[0] < below]
    if not content:
        next_offset = below
    expired: list[tuple[int, int]] = []
    for offset, time_ms in times:
        if time_ms > now_ms:
            continue
        if expired and expired[-1][1] + 1 == offset:
            expired[-1] = (expired[-1][0], offset)
        else:
            expired.append((offset, offset))
    due_ms = min((time_ms for _, time_ms in times if time_ms > now_ms), default=None)
    return SectionContent(min(next_offset, below), expired, due_ms)


def _times(header: BatchHeader, batch: memoryview) -> list[tuple[int, int]]:
    """Records of a batch that expire, each with its time."""
    if header.is_control:
        return []
    try:
        body = decompress(header.codec, batch[HEADER_SIZE : header.size], _MAX_DECOMPRESSED)
        if not has_lifetime(bytes(body)):
            return []
        records = list(iterate(batch, header, max_decompressed_bytes=_MAX_DECOMPRESSED))
    except PenstockError:
        return []  # delivered as it is: the consumer decides about a batch that cannot be read
    found = []
    for record in records:
        time_ms = expires_at(record.timestamp, record.headers) if record.headers else None
        if time_ms is not None:
            found.append((record.offset, time_ms))
    return found
