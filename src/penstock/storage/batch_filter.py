"""What compaction leaves of one batch. Pure: keys, offsets and times in, bytes out.

Offsets, producer fields and codec of a batch stay. A tombstone stays until `delete.retention.ms` after the
pass that first met it; that moment is kept in the batch as Kafka does (KIP-534): a flag, and the base
timestamp. The last batch of every live producer stays, empty if need be, so that its sequence is not
forgotten. So do control batches, and a batch whose records cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import Buffer

from penstock.errors import InvalidBatch
from penstock.records.batch import CODEC_MASK, BatchHeader
from penstock.records.building import rebuild_batch
from penstock.records.iteration import Record, iterate
from penstock.storage.key_offsets import KeyOffsets

DELETE_HORIZON_FLAG = 0x40
_LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BatchFilter:
    keys: KeyOffsets
    end_offset: int
    """Up to where `keys` know the log."""
    log_start_offset: int
    last_offsets: Mapping[int, int]
    """Of every live producer, the offset of its last record."""
    now_ms: int
    delete_retention_ms: int
    max_decompressed_bytes: int

    def apply(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """The very same batch where all of it stays, a smaller one, or None."""
        if header.is_control:
            return batch
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
        if needs_horizon:
            horizon_ms = min(self.now_ms + self.delete_retention_ms, _LONG_MAX)
            header = header._replace(
                attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=horizon_ms
            )
        return rebuild_batch(header, kept)

    def _stays(self, header: BatchHeader, record: Record) -> bool:
        if record.key is None or record.offset < self.log_start_offset:
            return False
        if self.keys.is_outdated(record.key, record.offset):
            return False
        if record.value is not None or not header.attributes & DELETE_HORIZON_FLAG:
            return True
        return self.now_ms < header.base_timestamp

    def _needs_horizon(self, header: BatchHeader, kept: list[Record]) -> bool:
        """Whether a tombstone was met for the first time; what it outdates is gone after this pass."""
        if header.attributes & DELETE_HORIZON_FLAG:
            return False
        return any(record.value is None and record.offset < self.end_offset for record in kept)

    def _empty(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        if not header.has_producer or self.last_offsets.get(header.producer_id) != header.last_offset:
            return None
        if header.record_count == 0:
            return batch
        return rebuild_batch(header._replace(attributes=header.attributes & ~CODEC_MASK), ())
