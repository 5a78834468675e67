"""A log's derived state at an offset: leader epochs and producers, so that a start need not read the whole
log.

    magic 4 | version 2 | offset 8 | epochs 4 | producers 4 |
    each epoch: epoch 4, start offset 8 |
    each producer: id 8, epoch 2, last write 8, batches 1, each: sequences 4 + 4, offsets 8 + 8, timestamp 8 |
    crc32c 4                                                                               little endian

A file `<offset>.snapshot` beside the segments, written whole under a name of its own. One that is damaged
counts as missing: the next older is taken, and the batch headers after it are replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct, error

from crc32c import crc32c

from penstock.errors import StorageError
from penstock.model import LeaderEpoch, Offset
from penstock.storage.leader_epochs import EpochEntry
from penstock.storage.producer_state import AppendedBatch, ProducerEntry

SNAPSHOT_SUFFIX = ".snapshot"
KEPT_SNAPSHOTS = 2
_MAGIC = b"PSNP"
_VERSION = 1
_HEAD = Struct("<4sHqII")
_EPOCH = Struct("<iq")
_PRODUCER = Struct("<qhqB")
_BATCH = Struct("<iiqqq")
_CRC = Struct("<I")


def snapshot_name(offset: int) -> str:
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    offset: Offset
    epochs: tuple[EpochEntry, ...]
    producers: Mapping[int, ProducerEntry]
    """In the order of their last write."""

    def encode(self) -> bytes:
        parts = [_HEAD.pack(_MAGIC, _VERSION, self.offset, len(self.epochs), len(self.producers))]
        parts += (_EPOCH.pack(*entry) for entry in self.epochs)
        for producer_id, entry in self.producers.items():
            parts.append(_PRODUCER.pack(producer_id, entry.epoch, entry.last_write_ms, len(entry.batches)))
            parts += (_BATCH.pack(*batch) for batch in entry.batches)
        content = b"".join(parts)
        return content + _CRC.pack(crc32c(content))

    @classmethod
    def decode(cls, content: bytes) -> Snapshot:
        """StorageError where these are not the bytes of a snapshot."""
        try:
            (crc,) = _CRC.unpack(content[-_CRC.size :])
            magic, version, offset, epochs, producers = _HEAD.unpack_from(content)
        except error:
            raise StorageError("a snapshot is cut short") from None
        if magic != _MAGIC or crc32c(content[: -_CRC.size]) != crc:
            raise StorageError("a snapshot is damaged")
        if version != _VERSION:
            raise StorageError(f"a snapshot has version {version}, {_VERSION} is known")
        return cls(Offset(offset), *_decode_body(content, epochs, producers))


def _decode_body(
    content: bytes, epochs: int, producers: int
) -> tuple[tuple[EpochEntry, ...], dict[int, ProducerEntry]]:
    position = _HEAD.size
    end = position + epochs * _EPOCH.size
    entries = tuple(
        EpochEntry(LeaderEpoch(epoch), Offset(start))
        for epoch, start in _EPOCH.iter_unpack(content[position:end])
    )
    states: dict[int, ProducerEntry] = {}
    for _ in range(producers):
        producer_id, epoch, last_write_ms, count = _PRODUCER.unpack_from(content, end)
        position = end + _PRODUCER.size
        end = position + count * _BATCH.size
        batches = tuple(AppendedBatch(*batch) for batch in _BATCH.iter_unpack(content[position:end]))
        states[producer_id] = ProducerEntry(epoch, last_write_ms, batches)
    return entries, states
