"""Acquisition without expired records, which are archived or become dead letters and are not delivered.

The records of acquired batches are searched for the headers of `records/expiry.py`. A batch that is not in memory, or
is compressed and not small, is first read in a thread pool: the acquisition is undone and repeated later. The expiry
times of such batches are cached, and so are notes of large batches (`batch_notes.py`), from which excerpts are
delivered. Loop thread only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import PenstockError, WouldBlock
from penstock.queues.batch_notes import (
    CODEC_POSITION,
    LARGE_BYTES,
    MIN_COMPRESSED_RECORDS,
    BatchNotes,
    Expirations,
    Note,
    Places,
    RecordBodies,
    find_places,
    header_of_single,
    may_be_noted,
)
from penstock.queues.record_source import Part
from penstock.queues.share_reading import Fetched, ShareFetchLimits
from penstock.queues.states import Acknowledgement, AcknowledgeType, Acquired, DeadReason, Reason
from penstock.records.batch import CODEC_MASK, HEADER_SIZE, BatchHeader, read_header
from penstock.records.compression import decompress
from penstock.records.expiry import expires_at, has_lifetime
from penstock.records.iteration import iterate, read_batches
from penstock.records.log_slice import LogSlice
from penstock.threads import Threads

if TYPE_CHECKING:
    from penstock.queues.share_leader import ShareLeader

_INLINE_BYTES: Final = 4_096
"""Maximum size in bytes of a compressed batch that is decompressed on the event loop."""
_MAX_KNOWN: Final = 4_096
_MAX_LASTING: Final = 16
_MIN_REMEMBERED_BYTES: Final = 4_096
_MAX_ROUNDS: Final = 20
"""Maximum number of acquisitions with only expired records in one turn of the event loop."""
_MAX_DECOMPRESSED: Final = 256 << 20
EXPIRED: Final = Reason(DeadReason.EXPIRED)


class LiveRecords:
    """Expiry of records in one share-partition."""

    def __init__(self, threads: Threads, bodies: RecordBodies) -> None:
        self._threads = threads
        self._known: OrderedDict[int, Expirations] = OrderedDict()
        """Expiry times in compressed batches, by base offset."""
        self._notes = BatchNotes(bodies)
        self._lasting: dict[bytes, bool] = {}
        """True if no record of a batch expires, by the bytes of its header, which include a CRC of the content."""
        self._unread: list[Part] = []
        """Parts of the last acquisition that was undone, which `warm` has to read."""

    def acquire(self, leader: ShareLeader, wanted: ShareFetchLimits, now_ms: int, wall_ms: int) -> Fetched:
        """Acquire records that have not expired. After WouldBlock the caller has to await `warm` and try again."""
        for _ in range(_MAX_ROUNDS):
            fetched = leader.acquire(wanted, now_ms)
            partition = leader.partition
            if not fetched.acquired or partition is None:
                return fetched
            try:
                expired = self.expired(fetched.records, fetched.acquired, wall_ms)
            except WouldBlock:
                partition.take_back(wanted.member, fetched.acquired)
                raise
            if not expired:
                return self._delivered(fetched)
            types = bytes((AcknowledgeType.EXPIRE,))
            asked = [Acknowledgement(first, last, types) for first, last in expired]
            leader.acknowledge(
                wanted.member, asked, now_ms, AcknowledgeType.EXPIRE, lambda _: None, reason=EXPIRED
            )
            left = list(_without(fetched.acquired, expired))
            if left:
                return self._delivered(fetched._replace(acquired=left))
        raise WouldBlock  # other work gets a turn before more expired records are archived

    def _delivered(self, fetched: Fetched) -> Fetched:
        for part in fetched.records:
            if may_be_noted(part):
                return fetched._replace(records=self._notes.excerpts(fetched.records, fetched.acquired))
        return fetched

    def _is_lasting(self, part: Part) -> bool:
        """True if a part is an uncompressed batch in memory without records that expire; False if that is not known."""
        if isinstance(part, LogSlice):
            return False
        if len(part) < _MIN_REMEMBERED_BYTES:
            return _looks_lasting(part)
        header = bytes(part[:HEADER_SIZE])
        known = self._lasting.get(header)
        if known is None:
            if len(self._lasting) >= _MAX_LASTING:
                del self._lasting[next(iter(self._lasting))]
            known = self._lasting[header] = _looks_lasting(part)
        return known

    def expired(
        self, parts: Sequence[Part], acquired: Sequence[Acquired], wall_ms: int
    ) -> list[tuple[int, int]]:
        """Ranges of acquired records that have expired, in order; WouldBlock if some batches were not read yet."""
        if len(parts) == 1 and self._is_lasting(parts[0]):
            return []
        found: list[tuple[int, int]] = []
        # In a group with priorities, `parts` may contain a batch twice and batches in any order.
        past = {offset for offset, time_ms in self._expirations(parts) if time_ms <= wall_ms}
        for offset in sorted(past):
            if not any(each.first_offset <= offset <= each.last_offset for each in acquired):
                continue
            if found and found[-1][1] + 1 == offset:
                found[-1] = (found[-1][0], offset)
            else:
                found.append((offset, offset))
        return found

    def _expirations(self, parts: Sequence[Part]) -> Iterator[tuple[int, int]]:
        for part in parts:
            header = header_of_single(part) if len(part) >= LARGE_BYTES else None
            note = None if header is None else self._notes.find(header)
            if note is not None:
                yield from note.expirations
                continue
            content = _cached(part)
            if content is None:
                self._unread = list(parts)
                raise WouldBlock
            for batch_header, batch in read_batches(content):
                yield from self._expirations_of(batch_header, batch, parts)

    def _expirations_of(self, header: BatchHeader, batch: memoryview, parts: Sequence[Part]) -> Expirations:
        known = self._known.get(header.base_offset) if header.codec else None
        if known is None:
            if header.codec and header.size > _INLINE_BYTES:
                self._unread = list(parts)
                raise WouldBlock
            known = self._remember(_study(header, batch))
        return known

    def _remember(self, study: _Study) -> Expirations:
        header = study.header
        if header.codec:
            self._known[header.base_offset] = study.expirations
            self._known.move_to_end(header.base_offset)
        if study.places is not None:
            self._notes.add(Note(header, study.expirations, study.places), study.body)
        return study.expirations

    async def warm(self) -> None:
        """Read the parts of the last acquisition that was undone by WouldBlock."""
        unread, self._unread = self._unread, []
        if not unread:
            return
        known = await self._threads.run("read", lambda: _study_all(unread))
        for study in known:
            self._remember(study)
        while len(self._known) > max(_MAX_KNOWN, len(known)):
            self._known.popitem(last=False)


def _cached(part: Part) -> memoryview | None:
    if not isinstance(part, LogSlice):
        return part
    content = part.file.pread_cached(part.position, part.length)
    return None if content is None else memoryview(content)


def _looks_lasting(part: memoryview) -> bool:
    return (
        read_header(part).size == len(part)
        and not part[CODEC_POSITION] & CODEC_MASK
        and not has_lifetime(bytes(part))
    )


class _Study(NamedTuple):
    """Expiry times and places of the records of one batch."""

    header: BatchHeader
    expirations: Expirations = ()
    places: Places | None = None
    """Places of the records; None if the batch gets no note."""
    body: bytes = b""
    """Decompressed records of a compressed batch."""


def _study_all(parts: Sequence[Part]) -> list[_Study]:
    """Study the compressed batches of some parts. Runs in a thread pool."""
    found = []
    for part in parts:
        content = memoryview(part.read()) if isinstance(part, LogSlice) else part
        for header, batch in read_batches(content):
            if header.codec:
                found.append(_study(header, batch))
    return found


def _study(header: BatchHeader, batch: memoryview) -> _Study:
    if header.is_control:
        return _Study(header)
    try:
        body = bytes(decompress(header.codec, batch[HEADER_SIZE:], _MAX_DECOMPRESSED))
        expirations = _read_expirations(header, batch) if has_lifetime(body) else ()
    except PenstockError:
        return _Study(header)  # the batch is delivered unchanged, and the consumer handles the damage
    is_noted = header.record_count >= MIN_COMPRESSED_RECORDS if header.codec else header.size >= LARGE_BYTES
    places = find_places(header, body) if is_noted else None
    return _Study(header, expirations, places, body if header.codec else b"")


def _read_expirations(header: BatchHeader, batch: memoryview) -> Expirations:
    found = []
    for record in iterate(batch, header, max_decompressed_bytes=_MAX_DECOMPRESSED):
        time_ms = expires_at(record.timestamp, record.headers) if record.headers else None
        if time_ms is not None:
            found.append((record.offset, time_ms))
    return tuple(found)


def _without(acquired: Sequence[Acquired], gone: Sequence[tuple[int, int]]) -> Iterator[Acquired]:
    """The acquired ranges without the offsets in the ranges `gone`."""
    for each in acquired:
        first = each.first_offset
        for start, end in gone:
            if end < first or start > each.last_offset:
                continue
            if start > first:
                yield each._replace(first_offset=first, last_offset=start - 1)
            first = end + 1
        if first <= each.last_offset:
            yield each._replace(first_offset=first)
