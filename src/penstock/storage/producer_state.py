"""What a partition remembers of its idempotent producers, so that a retry is recognised and a gap refused
(KIP-98).

Checking and recording are two steps: a batch is checked before it is written and recorded once it is.
Producers are kept in the order of their last write; the longest silent go first when their time is over or
there are too many. Loop thread only; entries are immutable, so a copy of the mapping is a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.errors import BrokerError, ErrorCode
from penstock.records.batch import MAX_SEQUENCE, BatchHeader

REMEMBERED_BATCHES = 5  # as many requests as a client may have in flight


class AppendedBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    epoch: int
    last_write_ms: int
    batches: tuple[AppendedBatch, ...]
    """The newest, oldest first; at least one."""


class ProducerStates:
    __slots__ = ("_entries", "_expiration_ms", "_max_producers")

    def __init__(self, max_producers: int, expiration_ms: int) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._max_producers = max_producers
        self._expiration_ms = expiration_ms

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def copy(self) -> dict[int, ProducerEntry]:
        return dict(self._entries)

    def restore(self, entries: Iterable[tuple[int, ProducerEntry]]) -> None:
        self._entries = dict(entries)

    def set_limits(self, max_producers: int, expiration_ms: int) -> None:
        self._max_producers = max_producers
        self._expiration_ms = expiration_ms

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """None when the batch is the next of its producer; the earlier one when this is a retry of it."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None  # its records may have been removed: any sequence is a fair start (KIP-360)
        if header.producer_epoch != entry.epoch:
            return self._check_new_epoch(header, entry)
        sequence = header.base_sequence
        expected = (entry.batches[-1].last_sequence + 1) & MAX_SEQUENCE
        if sequence == expected:
            return None
        last_sequence = header.last_sequence
        for batch in entry.batches:
            if batch.base_sequence == sequence and batch.last_sequence == last_sequence:
                return batch
        if self._is_past(sequence, expected) and self._is_past(last_sequence, expected):
            raise BrokerError(
                ErrorCode.duplicate_sequence_number,
                f"producer {header.producer_id} sent sequence {sequence} again, long after the first time",
            )
        raise BrokerError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id} sent sequence {sequence}, {expected} is next",
        )

    @staticmethod
    def _check_new_epoch(header: BatchHeader, entry: ProducerEntry) -> None:
        if header.producer_epoch < entry.epoch:
            raise BrokerError(
                ErrorCode.invalid_producer_epoch,
                f"producer {header.producer_id} is at epoch {entry.epoch}, not {header.producer_epoch}",
            )
        if header.base_sequence != 0:
            raise BrokerError(
                ErrorCode.out_of_order_sequence_number,
                f"a new epoch of producer {header.producer_id} starts at {header.base_sequence}, not 0",
            )

    @staticmethod
    def _is_past(sequence: int, expected: int) -> bool:
        """Sequences wrap around, so half of them are behind the expected one and half are ahead."""
        return 0 < (expected - sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2

    def record(self, header: BatchHeader, base_offset: int, timestamp: int, now_ms: int) -> None:
        """The batch was written at `base_offset`."""
        entries = self._entries
        producer_id, delta = header.producer_id, header.last_offset_delta
        batch = AppendedBatch(
            header.base_sequence, header.last_sequence, base_offset, base_offset + delta, timestamp
        )
        entry = entries.pop(producer_id, None)
        if entry is None:
            self._make_room(now_ms)
            batches: tuple[AppendedBatch, ...] = (batch,)
        elif entry.epoch != header.producer_epoch:
            batches = (batch,)
        else:
            batches = (*entry.batches[1 - REMEMBERED_BATCHES :], batch)
        entries[producer_id] = ProducerEntry(header.producer_epoch, now_ms, batches)

    def _make_room(self, now_ms: int) -> None:
        """Called for each new producer: at most two go for one that comes, so no append pays for many."""
        entries = self._entries
        for _ in range(2):
            if not entries:
                return
            oldest = next(iter(entries))
            if (
                len(entries) < self._max_producers
                and now_ms - entries[oldest].last_write_ms < self._expiration_ms
            ):
                return
            del entries[oldest]
