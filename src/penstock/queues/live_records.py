"""Acquisitions without expired records: these are archived, or become dead letters, and are not delivered.

The records of acquired batches are looked into for the headers of `records/expiry.py`. A batch that is not in memory,
or is compressed and not small, is read in a pool first: the acquisition is taken back, as if it had not been made.
Expiry times of such batches are remembered. Loop thread only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError, WouldBlock
from penstock.queues.record_source import Part
from penstock.queues.share_reading import Fetched, Wanted
from penstock.queues.states import Acknowledgement, AcknowledgeType, Acquired, DeadReason, Reason
from penstock.records.batch import BatchHeader
from penstock.records.expiry import EXPIRING_BYTES, expires_at
from penstock.records.iteration import iterate, read_batches
from penstock.records.log_slice import LogSlice
from penstock.threads import Threads

if TYPE_CHECKING:
    from penstock.queues.share_leader import ShareLeader

_INLINE_BYTES: Final = 4_096
"""Size up to which a compressed batch is decompressed at once."""
_MAX_KNOWN: Final = 4_096
_MAX_ROUNDS: Final = 20
"""Number of acquisitions with nothing but expired records in one turn of the loop."""
_MAX_DECOMPRESSED: Final = 256 << 20
EXPIRED: Final = Reason(DeadReason.EXPIRED)

Expirations = tuple[tuple[int, int], ...]
"""Offsets of records that expire, each with its time in epoch milliseconds."""


class LiveRecords:
    """Expiry in one share-partition."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._known: OrderedDict[int, Expirations] = OrderedDict()
        """Expirations of compressed batches, by base offset."""
        self._unread: list[Part] = []
        """Parts of the acquisition that was taken back last."""

    def acquire(self, leader: ShareLeader, wanted: Wanted, now_ms: int, wall_ms: int) -> Fetched:
        """Acquire records that have not expired; WouldBlock until `warm` has read them."""
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
                return fetched
            types = bytes((AcknowledgeType.REJECT,))
            asked = [Acknowledgement(first, last, types) for first, last in expired]
            leader.acknowledge(
                wanted.member, asked, now_ms, AcknowledgeType.RENEW, lambda _: None, reason=EXPIRED
            )
            left = list(_without(fetched.acquired, expired))
            if left:
                return fetched._replace(acquired=left)
        raise WouldBlock  # others have a turn before more expired records are looked at

    def expired(
        self, parts: Sequence[Part], acquired: Sequence[Acquired], wall_ms: int
    ) -> list[tuple[int, int]]:
        """Acquired records that have expired, in order, neighbours in one range; WouldBlock if some are not read."""
        found: list[tuple[int, int]] = []
        # With priorities a batch may be there twice, and batches in any order.
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
            content = _cached(part)
            if content is None:
                self._unread = list(parts)
                raise WouldBlock
            for header, batch in read_batches(content):
                known = self._known.get(header.base_offset) if header.codec else None
                if known is None:
                    if header.codec and header.size > _INLINE_BYTES:
                        self._unread = list(parts)
                        raise WouldBlock
                    known = _look(header, batch)
                yield from known

    async def warm(self) -> None:
        """Read the parts that the last acquisition has not found in memory."""
        unread, self._unread = self._unread, []
        if not unread:
            return
        known = await self._threads.run("read", lambda: _look_all(unread))
        for offset, expirations in known:
            self._known[offset] = expirations
            self._known.move_to_end(offset)
        while len(self._known) > max(_MAX_KNOWN, len(known)):
            self._known.popitem(last=False)


def _cached(part: Part) -> memoryview | None:
    if not isinstance(part, LogSlice):
        return part
    content = part.file.pread_cached(part.position, part.length)
    return None if content is None else memoryview(content)


def _look_all(parts: Sequence[Part]) -> list[tuple[int, Expirations]]:
    """Expirations of the compressed batches of some parts, by base offset. Runs in a pool."""
    found = []
    for part in parts:
        content = memoryview(part.read()) if isinstance(part, LogSlice) else part
        for header, batch in read_batches(content):
            if header.codec:
                found.append((header.base_offset, _look(header, batch)))
    return found


def _look(header: BatchHeader, batch: memoryview) -> Expirations:
    if header.is_control or not (header.codec or any(name in bytes(batch) for name in EXPIRING_BYTES)):
        return ()
    found = []
    try:
        for record in iterate(batch, header, max_decompressed_bytes=_MAX_DECOMPRESSED):
            time_ms = expires_at(record.timestamp, record.headers) if record.headers else None
            if time_ms is not None:
                found.append((record.offset, time_ms))
    except PenstockError:
        return ()  # delivered as it is: the consumer decides about a batch that cannot be read
    return tuple(found)


def _without(acquired: Sequence[Acquired], gone: Sequence[tuple[int, int]]) -> Iterator[Acquired]:
    """The acquired ranges without those that are gone."""
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
