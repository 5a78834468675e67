"""Transaction markers: control batches of one record that say how a transaction ended.

    key: version 2 | type 2 (0 abort, 1 commit)      value: version 2 | coordinator epoch 4

Only brokers write markers. Other kinds of control batches, and control batches that compaction emptied, are no markers.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from penstock.errors import InvalidBatch
from penstock.records.batch import BatchHeader
from penstock.records.building import NewRecord, build_batch
from penstock.records.iteration import iterate

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1


class AbortedTransaction(NamedTuple):
    """An aborted transaction, as a Fetch response names it to a reader of committed records."""

    producer_id: int
    first_offset: int


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


def build_marker(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytearray:
    """Build the batch to append to every partition of the transaction."""
    key = _KEY.pack(_VERSION, _COMMIT if commit else _ABORT)
    record = NewRecord(key, _VALUE.pack(_VERSION, coordinator_epoch), timestamp_ms)
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: memoryview, header: BatchHeader) -> Marker | None:
    """Read the marker of a control batch; None if the batch is no marker."""
    try:
        record = next(iterate(batch, header), None)
        if record is None or record.key is None or record.value is None:
            return None
        _, kind = _KEY.unpack_from(record.key)
        _, coordinator_epoch = _VALUE.unpack_from(record.value)
    except (InvalidBatch, error):
        return None
    if kind not in (_ABORT, _COMMIT):
        return None
    return Marker(header.producer_id, header.producer_epoch, kind == _COMMIT, coordinator_epoch)
