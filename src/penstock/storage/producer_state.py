"""Producer state of a partition: detects duplicates and sequence gaps, and tracks transactions (KIP-98, KIP-890).

Checking and recording are two steps: a batch is checked before it is written and recorded afterwards. Producers are
kept in the order of their last write. The producer with the oldest write is removed when it has expired or there are
too many, unless it has an open transaction. Loop thread only; entries are immutable, so a copy of the mapping is a
snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.errors import BrokerError, ErrorCode
from penstock.records.batch import MAX_SEQUENCE, TRANSACTIONAL_FLAG, BatchHeader
from penstock.records.control import Marker
from penstock.storage.aborted_transactions import AbortedRange, AbortedTransactions
from penstock.storage.unstable_offsets import EndedTransaction, UnstableOffsets

REMEMBERED_BATCHES = 5  # as many as `max.in.flight.requests.per.connection` allows an idempotent producer
NO_TRANSACTION = -1
NO_COORDINATOR_EPOCH = -1
NO_MARKER = -1


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
    """The newest batches of this epoch, oldest first; empty after a marker that began the epoch."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """Coordinator epoch of the last marker."""
    transaction_start: int = NO_TRANSACTION
    """First offset of the open transaction; NO_TRANSACTION if none is open."""
    marker_offset: int = NO_MARKER
    """Offset of the last marker."""
    first_sequence: int | None = None
    """First sequence number of this epoch that this log has stored: it has all sequences from there to the last batch.

    None if unknown, as after a start from a snapshot of an earlier version.
    """


class ProducerStates:
    __slots__ = ("_entries", "_expiration_ms", "_max_producers", "aborted", "unstable")

    def __init__(self, max_producers: int, expiration_ms: int) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._max_producers = max_producers
        self._expiration_ms = expiration_ms
        self.unstable = UnstableOffsets()
        self.aborted = AbortedTransactions()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def copy(self) -> dict[int, ProducerEntry]:
        return dict(self._entries)

    def restore(
        self,
        entries: Iterable[tuple[int, ProducerEntry]],
        ended: Iterable[EndedTransaction] = (),
        aborted: Iterable[AbortedRange] = (),
    ) -> None:
        self._entries = dict(entries)
        starts = (entry.transaction_start for entry in self._entries.values())
        self.unstable = UnstableOffsets((start for start in starts if start >= 0), ended)
        self.aborted = AbortedTransactions(aborted)

    def ongoing(self, producer_id: int) -> int | None:
        """First offset of the producer's open transaction; None if none is open."""
        entry = self._entries.get(producer_id)
        return None if entry is None or entry.transaction_start < 0 else entry.transaction_start

    def is_in_transaction(self, header: BatchHeader) -> bool:
        """True if a transaction of the batch's producer is open in the same epoch."""
        entry = self._entries.get(header.producer_id)
        return entry is not None and entry.transaction_start >= 0 and entry.epoch == header.producer_epoch

    def set_limits(self, max_producers: int, expiration_ms: int) -> None:
        self._max_producers = max_producers
        self._expiration_ms = expiration_ms

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """Check a batch before it is written. Return the stored batch if this is a retry, None if it has to be written.

        BrokerError if the batch is not allowed.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None  # the producer's state may have expired, so any sequence is accepted (KIP-360)
        if entry.transaction_start >= 0 and not header.attributes & TRANSACTIONAL_FLAG:
            raise BrokerError(
                ErrorCode.invalid_txn_state,
                f"producer {header.producer_id} has an open transaction, and this batch is not transactional",
            )
        if header.producer_epoch != entry.epoch:
            return self._check_new_epoch(header, entry)
        sequence = header.base_sequence
        if sequence < 0:
            return None  # a coordinator writes this batch for the producer and never retries it
        expected = (entry.batches[-1].last_sequence + 1) & MAX_SEQUENCE if entry.batches else 0
        if sequence == expected:
            return None
        last_sequence = header.last_sequence
        for batch in entry.batches:
            if batch.base_sequence == sequence and batch.last_sequence == last_sequence:
                return batch
        # A lower sequence than the known ones does not prove that the batch was stored: it may have been lost with a
        # fenced leader, while a later batch of the producer was the first in this log. A client treats
        # DUPLICATE_SEQUENCE_NUMBER as success, so it is returned only for sequences that this log has stored.
        first = entry.first_sequence
        if first is not None and self._is_within(first, sequence, last_sequence, expected):
            raise BrokerError(
                ErrorCode.duplicate_sequence_number,
                f"producer {header.producer_id} repeated sequence {sequence}, which is too old to be verified",
            )
        raise BrokerError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id} sent sequence {sequence}, expected {expected}",
        )

    @staticmethod
    def _check_new_epoch(header: BatchHeader, entry: ProducerEntry) -> None:
        if header.producer_epoch < entry.epoch:
            raise BrokerError(
                ErrorCode.invalid_producer_epoch,
                f"producer {header.producer_id} has epoch {entry.epoch}, the batch has epoch {header.producer_epoch}",
            )
        if header.base_sequence > 0:
            raise BrokerError(
                ErrorCode.out_of_order_sequence_number,
                f"a new epoch of producer {header.producer_id} has sequence {header.base_sequence}, expected 0",
            )

    @staticmethod
    def _is_within(first: int, sequence: int, last_sequence: int, end: int) -> bool:
        """True if the sequences from `sequence` to `last_sequence` are within `first` to `end`, exclusive.

        Sequences wrap around at MAX_SEQUENCE. If more were stored, the result may be False for old ones.
        """
        begin, last, length = ((value - first) & MAX_SEQUENCE for value in (sequence, last_sequence, end))
        return begin <= last < length

    def record(self, header: BatchHeader, base_offset: int, timestamp: int, now_ms: int) -> None:
        """Record a batch that was written at `base_offset`."""
        entries = self._entries
        producer_id, delta = header.producer_id, header.last_offset_delta
        batches: tuple[AppendedBatch, ...] = ()
        if header.base_sequence >= 0:
            batches = (
                AppendedBatch(
                    header.base_sequence, header.last_sequence, base_offset, base_offset + delta, timestamp
                ),
            )
        first_sequence = header.base_sequence if batches else None
        entry = entries.pop(producer_id, None)
        coordinator_epoch, transaction_start, marker_offset = NO_COORDINATOR_EPOCH, NO_TRANSACTION, NO_MARKER
        if entry is None:
            self._make_room(now_ms)
        else:
            _, _, _, coordinator_epoch, transaction_start, marker_offset, _ = entry
            if entry.epoch == header.producer_epoch:
                if entry.batches:
                    first_sequence = entry.first_sequence
                batches = (*entry.batches[1 - REMEMBERED_BATCHES :], *batches)
        if header.attributes & TRANSACTIONAL_FLAG and transaction_start < 0:
            transaction_start = base_offset
            self.unstable.open(base_offset)
        entries[producer_id] = ProducerEntry(
            header.producer_epoch,
            now_ms,
            batches,
            coordinator_epoch,
            transaction_start,
            marker_offset,
            first_sequence,
        )

    def check_marker(self, marker: Marker, *, is_epoch_new: bool) -> bool:
        """True if the marker has to be written, False if it was written already; BrokerError if it is not allowed.

        `is_epoch_new` is True from transaction version 2 on: the marker has the bumped epoch that the producer will use
        next. A late marker then finds this epoch in use and cannot end a later transaction.
        """
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return True
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise BrokerError(
                ErrorCode.transaction_coordinator_fenced,
                f"the marker has coordinator epoch {marker.coordinator_epoch}, "
                f"a newer one is {entry.coordinator_epoch}",
            )
        is_in_use = is_epoch_new and marker.producer_epoch == entry.epoch and entry.transaction_start >= 0
        if marker.producer_epoch < entry.epoch or is_in_use:
            raise BrokerError(
                ErrorCode.invalid_producer_epoch,
                f"producer {marker.producer_id} has epoch {entry.epoch}, "
                f"the marker has epoch {marker.producer_epoch}",
            )
        return not is_epoch_new or marker.producer_epoch > entry.epoch

    def superseded(self, header: BatchHeader) -> Marker | None:
        """An abort marker for the transaction that the producer left open in an earlier epoch; None without one."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.transaction_start < 0 or entry.epoch >= header.producer_epoch:
            return None
        return Marker(header.producer_id, entry.epoch, False, entry.coordinator_epoch)

    def end_transaction(self, marker: Marker, offset: int, now_ms: int) -> None:
        """Record a marker that was written at `offset`."""
        entry = self._entries.pop(marker.producer_id, None)
        batches: tuple[AppendedBatch, ...] = ()
        first_sequence: int | None = None
        if entry is None:
            self._make_room(now_ms)
        else:
            if entry.transaction_start >= 0:
                self._end(marker, entry.transaction_start, offset)
            if entry.epoch == marker.producer_epoch:
                batches, first_sequence = entry.batches, entry.first_sequence
        self._entries[marker.producer_id] = ProducerEntry(
            marker.producer_epoch,
            now_ms,
            batches,
            marker.coordinator_epoch,
            marker_offset=offset,
            first_sequence=first_sequence,
        )

    def _end(self, marker: Marker, first_offset: int, offset: int) -> None:
        self.unstable.end(first_offset, offset)
        if not marker.is_commit:
            first_open = self.unstable.first_open()
            later_from = offset + 1 if first_open is None else first_open
            self.aborted.add(AbortedRange(marker.producer_id, first_offset, offset, later_from))

    def _make_room(self, now_ms: int) -> None:
        """Remove expired or surplus producers: at most two for each new one, to bound the time of an append."""
        entries = self._entries
        for _ in range(2):
            if not entries:
                return
            oldest = next(iter(entries))
            entry = entries[oldest]
            if len(entries) < self._max_producers and now_ms - entry.last_write_ms < self._expiration_ms:
                return
            del entries[oldest]
            if entry.transaction_start >= 0:
                entries[oldest] = entry
