"""Replays a log into the state of a shard: parts are read and decoded in a thread pool, and applied on the event loop
in small portions.

Records up to the log end offset are applied; `Shards` starts a replay when all of them are committed. A record that
cannot be decoded is skipped and counted, and so is a batch whose CRC does not match; all other records are applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from penstock.errors import CorruptLog, InvalidBatch, PenstockError
from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE, BatchHeader, crc_matches
from penstock.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from penstock.records.control import Marker, read_marker
from penstock.records.iteration import read_batches
from penstock.records.walking import layouts
from penstock.replication.replica import Replica
from penstock.storage.log import Log
from penstock.threads import Threads

R = TypeVar("R")
Decode = Callable[[bytes, bytes | None], R]
"""Function that decodes a record from key and value; raises only UnknownRecord, even for damaged bytes."""

PART_BYTES = 1_048_576
RECORDS_PER_TURN = 500


class UnknownRecord(PenstockError):
    """A record of an unknown kind or version, or a damaged record. A replay skips it."""


class InTransaction(NamedTuple, Generic[R]):
    """A record of a transaction, which takes effect when the transaction is committed."""

    producer_id: int
    record: R


def _ignore(step: InTransaction[R] | Marker) -> None:
    """Ignore transactional records: the default for logs without transactions."""


@dataclass(slots=True)
class LogPart(Generic[R]):
    """Result of one read of the log."""

    next_offset: Offset
    steps: list[R | InTransaction[R] | Marker] = field(default_factory=list)
    unknown: int = 0
    """Number of records that were skipped."""
    is_damaged: bool = False
    suspect: Offset | None = None
    """Offset at which the first damage in the stored bytes begins; None if all batches are valid."""


@dataclass(slots=True)
class Replaying(Generic[R]):
    """One pass over one log."""

    replica: Replica
    threads: Threads
    decode: Decode[R]
    apply: Callable[[R], None]
    apply_transactional: Callable[[InTransaction[R] | Marker], None] = _ignore
    newest_only: bool = False
    """True to skip a record if a later record in the same part of the log has the same key. This is allowed if each
    record replaces the former one, but not if records are updates of a snapshot."""
    unknown: int = 0
    damaged_parts: int = 0

    async def run(self) -> None:
        """Read the log from start to end and apply its records; StorageError if it cannot be read."""
        log = self.replica.log
        offset, end_offset = log.log_start_offset, log.log_end_offset
        while offset < end_offset:
            read = partial(read_part, log, offset, end_offset, self.decode, newest_only=self.newest_only)
            part = await self.threads.run("read", read)
            self.unknown += part.unknown
            self.damaged_parts += part.is_damaged
            if part.suspect is not None:
                self.replica.on_unreadable(part.suspect)
            await self._apply(part.steps)
            offset = part.next_offset

    async def _apply(self, steps: Sequence[R | InTransaction[R] | Marker]) -> None:
        for start in range(0, len(steps), RECORDS_PER_TURN):
            for step in steps[start : start + RECORDS_PER_TURN]:
                if isinstance(step, (InTransaction, Marker)):
                    self.apply_transactional(step)
                else:
                    self.apply(step)
            await asyncio.sleep(0)


def read_part(
    log: Log, offset: Offset, end_offset: Offset, decode: Decode[R], *, newest_only: bool
) -> LogPart[R]:
    """Read and decode the next part of the log, from `offset` on. Waits for the disk.

    With `newest_only`, only the newest of several records with the same key is decoded, unless a transactional batch
    is between them.
    """
    part: LogPart[R] = LogPart(offset)
    found = _Found(newest_only)
    try:
        content = log.read(offset, PART_BYTES, below=end_offset, at_least_one=True, wait=True).read()
        if not content:
            part.next_offset = end_offset  # compaction removed everything up to the end
        is_whole = True
        for header, batch in read_batches(memoryview(content)):
            is_whole = crc_matches(batch, header)
            if not is_whole:
                _suspect(part)
                continue
            part.next_offset = max(part.next_offset, header.next_offset)
            try:
                if header.is_transactional:
                    _decode(found, part, decode)
                    _add_transactional(batch, header, part, decode)
                else:
                    part.unknown += found.add(batch, header)
            except InvalidBatch:
                part.is_damaged = True
        if not is_whole:
            # The last batch is damaged, so the offset of the next batch cannot be read from its header.
            part.next_offset = _behind_damage(log, part.next_offset, end_offset)
    except (CorruptLog, InvalidBatch):
        _suspect(part)
        part.next_offset = _behind_damage(log, part.next_offset, end_offset)
    _decode(found, part, decode)
    return part


def _suspect(part: LogPart[R]) -> None:
    part.is_damaged = True
    if part.suspect is None:
        part.suspect = part.next_offset


class _Found:
    """Keys and values of batches, in log order."""

    def __init__(self, newest_only: bool) -> None:
        self._newest_only = newest_only
        self._records: dict[bytes | int, tuple[bytes, bytes | None]] = {}

    def take(self) -> Iterable[tuple[bytes, bytes | None]]:
        records, self._records = self._records, {}
        return records.values()

    def add(self, batch: memoryview, header: BatchHeader) -> int:
        """Add the records of a batch; return the number of skipped records: coordinators write none without a key."""
        if header.is_control:
            return 0
        records, without_key = self._records, 0
        body = bytes(decompress(header.codec, batch[HEADER_SIZE:], MAX_DECOMPRESSED_BYTES))
        for _, _, _, _, key_start, key_length, start, length, *_ in layouts(body, header.record_count):
            if key_length < 0:
                without_key += 1
                continue
            key = body[key_start : key_start + key_length]
            value = None if length < 0 else body[start : start + length]
            if self._newest_only:
                records.pop(key, None)  # so that the key moves to the end, to its place in log order
                records[key] = key, value
            else:
                records[len(records)] = key, value
        return without_key


def _decode(found: _Found, part: LogPart[R], decode: Decode[R]) -> None:
    for key, value in found.take():
        try:
            part.steps.append(decode(key, value))
        except UnknownRecord:
            part.unknown += 1


def _add_transactional(batch: memoryview, header: BatchHeader, part: LogPart[R], decode: Decode[R]) -> None:
    if header.is_control:
        marker = read_marker(batch, header)
        if marker is not None:
            part.steps.append(marker)
        return
    found = _Found(newest_only=False)
    part.unknown += found.add(batch, header)
    for key, value in found.take():
        try:
            part.steps.append(InTransaction(header.producer_id, decode(key, value)))
        except UnknownRecord:
            part.unknown += 1


def _behind_damage(log: Log, offset: Offset, end_offset: Offset) -> Offset:
    """Find the first readable offset above the damage at `offset`."""
    step = 1
    while offset + step < end_offset and not _is_readable(log, Offset(offset + step), end_offset):
        step *= 2
    bad, good = offset + step // 2, min(offset + step, end_offset)
    while good - bad > 1:
        middle = (good + bad) // 2
        if _is_readable(log, Offset(middle), end_offset):
            good = middle
        else:
            bad = middle
    return Offset(good)


def _is_readable(log: Log, offset: Offset, end_offset: Offset) -> bool:
    try:
        content = log.read(offset, 1, below=end_offset, at_least_one=True, wait=True).read()
        return any(
            header.next_offset > offset and crc_matches(batch, header)
            for header, batch in read_batches(memoryview(content))
        )
    except (CorruptLog, InvalidBatch):
        return False
