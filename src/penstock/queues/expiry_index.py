"""Expiry of records that no consumer fetches: sections of a partition's log with their earliest expiry time.

A section is read once, and again when its earliest expiry time has passed. Sections have about one megabyte; only
sections with records that expire are kept. Pure, except for `read_section`, which runs in a thread pool.
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
    """A range of offsets whose records were read."""

    first: int
    last: int
    due_ms: int
    """Earliest expiry time, in epoch milliseconds, of the records that had not expired when the section was read."""


class SectionContent(NamedTuple):
    """Content of a section."""

    next_offset: int
    expired: list[tuple[int, int]]
    """Ranges of offsets of expired records: first and last offset."""
    due_ms: int | None
    """Earliest expiry time of the other records, in epoch milliseconds; None if none of them expires."""


class ExpiryIndex:
    """Sections of one partition."""

    def __init__(self) -> None:
        self.next_offset = 0
        """Offset at which the next section begins: later records were not read yet."""
        self._sections: list[ExpirySection] = []

    def __len__(self) -> int:
        return len(self._sections)

    def forget_below(self, offset: int) -> None:
        """Drop sections below `offset`, because all of their records are settled."""
        self._sections = [each for each in self._sections if each.last >= offset]
        self.next_offset = max(self.next_offset, offset)

    def due(self, now_ms: int) -> list[ExpirySection]:
        return [each for each in self._sections if each.due_ms <= now_ms]

    def replace(self, section: ExpirySection, due_ms: int | None) -> None:
        """Replace a section that was read again; `due_ms` is None if no record of it expires any more."""
        self._sections.remove(section)
        if due_ms is not None:
            self.add(section.first, section.last, due_ms)

    def add(self, first: int, last: int, due_ms: int) -> None:
        self._sections.append(ExpirySection(first, last, due_ms))


def read_section(log: Log, first: int, below: int, now_ms: int) -> SectionContent:
    """Read the records of a section that begins at `first`, in a thread pool."""
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
    """Offset and expiry time of each record in a batch that expires."""
    if header.is_control:
        return []
    try:
        body = decompress(header.codec, batch[HEADER_SIZE : header.size], _MAX_DECOMPRESSED)
        if not has_lifetime(bytes(body)):
            return []
        records = list(iterate(batch, header, max_decompressed_bytes=_MAX_DECOMPRESSED))
    except PenstockError:
        return []  # the batch will be delivered unchanged, and the consumer handles the damage
    found = []
    for record in records:
        time_ms = expires_at(record.timestamp, record.headers) if record.headers else None
        if time_ms is not None:
            found.append((record.offset, time_ms))
    return found
