"""Snapshot of a log's derived state at an offset: leader epochs, producers and transactions.

    magic 4 | version 2 | offset 8 | epochs 4 | producers 4 | ended 4 | aborted 4 |
    each epoch: epoch 4, start offset 8 |
    each ended transaction whose marker may be lost: marker offset 8, first offset 8 |
    each aborted transaction: producer id 8, first offset 8, last offset 8, `AbortedRange.later_from` 8 |
    each producer: id 8, epoch 2, last write 8, coordinator epoch 4, start of its transaction 8, last marker 8,
        first sequence 4, batches 1, each: sequences 4 + 4, offsets 8 + 8, timestamp 8 |
    crc32c 4                                                                               little endian

With a snapshot a start need not read the whole log. Format version 2, which lacks the first sequence, can be read too.
An unknown first sequence is -1. The file `<offset>.snapshot` is in the directory of the segments. A damaged snapshot is
ignored: the next older one is used, and the batch headers after it are replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct, error

from crc32c import crc32c

from penstock.errors import StorageError
from penstock.model import LeaderEpoch, Offset
from penstock.storage.aborted_transactions import AbortedRange, AbortedTransactions
from penstock.storage.leader_epochs import EpochEntry
from penstock.storage.producer_state import AppendedBatch, ProducerEntry
from penstock.storage.unstable_offsets import EndedTransaction

SNAPSHOT_SUFFIX = ".snapshot"
KEPT_SNAPSHOTS = 2
_MAGIC = b"PSNP"
_VERSION = 3
_VERSION_WITHOUT_FIRST_SEQUENCE = 2
_HEAD = Struct("<4sHqIIII")
_EPOCH = Struct("<iq")
_ENDED = Struct("<qq")
_ABORTED = Struct("<qqqq")
_PRODUCER = Struct("<qhqiqqiB")
_PRODUCER_WITHOUT_FIRST_SEQUENCE = Struct("<qhqiqqB")
_NO_SEQUENCE = -1
_BATCH = Struct("<iiqqq")
_CRC = Struct("<I")


def snapshot_name(offset: int) -> str:
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    offset: Offset
    epochs: tuple[EpochEntry, ...]
    producers: Mapping[int, ProducerEntry]
    """Producer states by producer id, in the order of their last write."""
    ended: tuple[EndedTransaction, ...] = ()
    aborted: AbortedTransactions = field(default_factory=AbortedTransactions)

    def encode(self) -> bytes:
        counts = (len(self.epochs), len(self.producers), len(self.ended), len(self.aborted))
        parts = [_HEAD.pack(_MAGIC, _VERSION, self.offset, *counts)]
        parts += (_EPOCH.pack(*entry) for entry in self.epochs)
        parts += (_ENDED.pack(*ended) for ended in self.ended)
        parts += (_ABORTED.pack(*aborted) for aborted in self.aborted)
        for producer_id, entry in self.producers.items():
            parts.append(
                _PRODUCER.pack(
                    producer_id,
                    entry.epoch,
                    entry.last_write_ms,
                    entry.coordinator_epoch,
                    entry.transaction_start,
                    entry.marker_offset,
                    _NO_SEQUENCE if entry.first_sequence is None else entry.first_sequence,
                    len(entry.batches),
                )
            )
            parts += (_BATCH.pack(*batch) for batch in entry.batches)
        content = b"".join(parts)
        return content + _CRC.pack(crc32c(content))

    @classmethod
    def decode(cls, content: bytes) -> Snapshot:
        """Decode a snapshot; StorageError if the bytes are not one."""
        try:
            (crc,) = _CRC.unpack(content[-_CRC.size :])
            magic, version, offset, *counts = _HEAD.unpack_from(content)
        except error:
            raise StorageError("the snapshot is too short") from None
        if magic != _MAGIC or crc32c(content[: -_CRC.size]) != crc:
            raise StorageError("the checksum of the snapshot does not match")
        if version not in (_VERSION_WITHOUT_FIRST_SEQUENCE, _VERSION):
            raise StorageError(f"the snapshot has version {version}, only {_VERSION} is supported")
        return _decode_body(Offset(offset), content, version, *counts)


def _decode_body(
    offset: Offset, content: bytes, version: int, epochs: int, producers: int, ended: int, aborted: int
) -> Snapshot:
    ended_at = _HEAD.size + epochs * _EPOCH.size
    aborted_at = ended_at + ended * _ENDED.size
    producers_at = aborted_at + aborted * _ABORTED.size
    return Snapshot(
        offset,
        tuple(
            EpochEntry(LeaderEpoch(epoch), Offset(start))
            for epoch, start in _EPOCH.iter_unpack(content[_HEAD.size : ended_at])
        ),
        _decode_producers(content, producers_at, producers, version),
        tuple(EndedTransaction(*fields) for fields in _ENDED.iter_unpack(content[ended_at:aborted_at])),
        AbortedTransactions(
            AbortedRange(*fields) for fields in _ABORTED.iter_unpack(content[aborted_at:producers_at])
        ),
    )


def _decode_producers(content: bytes, position: int, count: int, version: int) -> dict[int, ProducerEntry]:
    states: dict[int, ProducerEntry] = {}
    has_first = version > _VERSION_WITHOUT_FIRST_SEQUENCE
    layout = _PRODUCER if has_first else _PRODUCER_WITHOUT_FIRST_SEQUENCE
    for _ in range(count):
        producer_id, epoch, last_write_ms, coordinator_epoch, start, marker_offset, *rest = (
            layout.unpack_from(content, position)
        )
        first_sequence, batches = rest if has_first else (_NO_SEQUENCE, *rest)
        batches_at = position + layout.size
        position = batches_at + batches * _BATCH.size
        states[producer_id] = ProducerEntry(
            epoch,
            last_write_ms,
            tuple(AppendedBatch(*batch) for batch in _BATCH.iter_unpack(content[batches_at:position])),
            coordinator_epoch,
            start,
            marker_offset,
            None if first_sequence == _NO_SEQUENCE else first_sequence,
        )
    return states
