"""The rules by which compaction keeps or removes the records of one batch. Reads and writes no files.

Offsets, producer fields and codec of a batch stay the same. A tombstone stays until `delete.retention.ms` after the
pass that first met it; the batch stores that time as in Kafka (KIP-534): a flag, and the base timestamp. The last batch
of every live producer stays, without records if all were removed, so that its sequence number is not forgotten. A batch
whose records cannot be read stays too.

Aborted records are removed. A transaction marker stays until a pass that finds no records of its transaction, and then
as long as a tombstone. The marker of an aborted transaction is removed at the earliest one pass after a Fetch response
could last list the transaction: without the marker, a reader would skip the producer's next records too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from typing_extensions import Buffer

from penstock.errors import InvalidBatch
from penstock.records.batch import CODEC_MASK, BatchHeader
from penstock.records.building import rebuild_batch
from penstock.records.control import read_marker
from penstock.records.iteration import Record, iterate
from penstock.storage.aborted_transactions import AbortedTransactions
from penstock.storage.key_offsets import KeyOffsets
from penstock.storage.producer_state import ProducerEntry

DELETE_HORIZON_FLAG = 0x40
_LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LiveProducers:
    """The batch of each known producer that compaction must keep."""

    last_offsets: Mapping[int, int]
    """Last offset of the last batch of each producer that has written in its current epoch, by producer id."""
    marker_offsets: Mapping[int, int]
    """Offset of the last transaction marker of each other producer, by producer id."""

    @classmethod
    def of(cls, entries: Mapping[int, ProducerEntry]) -> LiveProducers:
        return cls(
            {
                producer_id: entry.batches[-1].last_offset
                for producer_id, entry in entries.items()
                if entry.batches
            },
            {producer_id: entry.marker_offset for producer_id, entry in entries.items() if not entry.batches},
        )

    def keep(self, header: BatchHeader) -> bool:
        """True if the batch is the last one of its producer."""
        if header.is_control:
            return self.marker_offsets.get(header.producer_id) == header.base_offset
        return header.has_producer and self.last_offsets.get(header.producer_id) == header.last_offset


@dataclass(frozen=True, slots=True)
class BatchFilter:
    """The filter of one compaction pass. `apply` must be called for every batch in order."""

    keys: KeyOffsets
    end_offset: int
    """Offset up to which the keys of the log were collected in `keys`."""
    log_start_offset: int
    producers: LiveProducers
    aborted: AbortedTransactions
    now_ms: int
    delete_retention_ms: int
    max_decompressed_bytes: int
    settled: set[int] = field(default_factory=set)
    """Marker offsets of aborted transactions whose records were all removed by earlier passes; Fetch responses need
    not list these transactions.
    """
    _in_transaction: set[int] = field(default_factory=set)
    """Ids of producers with a transactional batch since their last marker."""

    def apply(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """Filter one batch: return it unchanged, or a rebuilt batch, or None if the batch is removed."""
        if header.is_control:
            return self._apply_control(header, batch)
        if header.is_transactional:
            self._in_transaction.add(header.producer_id)
            if self.aborted.has(header.producer_id, header.base_offset):
                return self._empty(header, batch)
        try:
            records = list(iterate(batch, header, max_decompressed_bytes=self.max_decompressed_bytes))
        except InvalidBatch:
            return batch
        kept = [record for record in records if self._stays(header, record)]
        if not kept:
            return self._empty(header, batch)
        needs_horizon = self._needs_horizon(header, kept)
        if len(kept) == len(records) and not needs_horizon:
            return batch
        return rebuild_batch(self._with_horizon(header) if needs_horizon else header, kept)

    def _apply_control(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        marker = read_marker(batch, header)
        if marker is None:
            return batch
        if header.producer_id in self._in_transaction:
            self._in_transaction.discard(header.producer_id)
            return batch
        is_known = self.aborted.has_marker(header.base_offset)
        if is_known:
            self.settled.add(header.base_offset)
        if not header.attributes & DELETE_HORIZON_FLAG:
            records = list(iterate(batch, header))
            return rebuild_batch(self._with_horizon(header), records)
        stays = is_known or self.now_ms < header.base_timestamp or self.producers.keep(header)
        return batch if stays else None

    def _with_horizon(self, header: BatchHeader) -> BatchHeader:
        horizon_ms = min(self.now_ms + self.delete_retention_ms, _LONG_MAX)
        return header._replace(attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=horizon_ms)

    def _stays(self, header: BatchHeader, record: Record) -> bool:
        if record.key is None or record.offset < self.log_start_offset:
            return False
        if self.keys.is_outdated(record.key, record.offset):
            return False
        if record.value is not None or not header.attributes & DELETE_HORIZON_FLAG:
            return True
        return self.now_ms < header.base_timestamp

    def _needs_horizon(self, header: BatchHeader, kept: list[Record]) -> bool:
        """True if `kept` has a tombstone without a delete horizon; this pass removes the records that it deletes."""
        if header.attributes & DELETE_HORIZON_FLAG:
            return False
        return any(record.value is None and record.offset < self.end_offset for record in kept)

    def _empty(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        if not self.producers.keep(header):
            return None
        if header.record_count == 0:
            return batch
        return rebuild_batch(header._replace(attributes=header.attributes & ~CODEC_MASK), ())
