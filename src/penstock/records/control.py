"""Control batches: transaction markers, and the ranges of offsets that a projection leaves out.

    key: version 2 | type 2 (0 abort, 1 commit)      value: version 2 | coordinator epoch 4

Only brokers write markers. Other kinds of control batches, and control batches that compaction has emptied, are not
markers. A skipped range is never stored but made for a Fetch response. It is a control batch with one record, of a type
that no client knows, at the last offset of the range. Clients ignore the record and move their position after it.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from penstock.errors import InvalidBatch
from penstock.records.batch import (
    CONTROL_FLAG,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    write_crc,
    write_header,
)
from penstock.records.iteration import iterate
from penstock.records.plain_batch import build_plain_batch, encode_plain_record

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_PLAIN = Struct(">5shhchic")
"""Record of a marker as brokers write it: start of the record, key, length of the value, value, number of headers."""
_PLAIN_FRAMING = (b"\x20\x00\x00\x00\x08", b"\x0c", b"\x00")
_PLAIN_LENGTH = HEADER_SIZE - LENGTH_OVERHEAD + _PLAIN.size
_VERSION = 0
_ABORT, _COMMIT = 0, 1
_SKIPPED = 0x7FFF
_NO_TIMESTAMP = -1
MAX_SKIPPED_OFFSETS = 2**31 - 1
"""Maximum number of offsets in one skipped range."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction, as in a Fetch response with the isolation level read_committed."""

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
    """Build the marker batch that is appended to every partition of the transaction."""
    key = _KEY.pack(_VERSION, _COMMIT if commit else _ABORT)
    record = encode_plain_record(0, key, _VALUE.pack(_VERSION, coordinator_epoch))
    batch, _ = build_plain_batch(
        [record],
        timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    return batch


def read_marker(batch: memoryview, header: BatchHeader) -> Marker | None:
    """Read the marker of a control batch; None if the batch is no marker."""
    try:
        if header.batch_length == _PLAIN_LENGTH and header.record_count == 1 and not header.codec:
            start, _, kind, middle, _, coordinator_epoch, end = _PLAIN.unpack_from(batch, HEADER_SIZE)
            if (start, middle, end) == _PLAIN_FRAMING and kind in (_ABORT, _COMMIT):
                return Marker(header.producer_id, header.producer_epoch, kind == _COMMIT, coordinator_epoch)
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


def build_skipped_range(first_offset: int, last_offset: int, leader_epoch: int) -> bytearray:
    """Build the control batch that replaces a range of offsets without visible records."""
    length = last_offset - first_offset + 1
    assert 0 < length <= MAX_SKIPPED_OFFSETS, "a skipped range has offsets, and no more than fit into a batch"
    record = encode_plain_record(length - 1, _KEY.pack(_VERSION, _SKIPPED), b"")
    batch = bytearray(HEADER_SIZE) + record
    header = BatchHeader(
        first_offset,
        len(batch) - LENGTH_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        CONTROL_FLAG,
        length - 1,
        _NO_TIMESTAMP,
        _NO_TIMESTAMP,
        -1,
        -1,
        -1,
        1,
    )
    write_header(batch, header)
    write_crc(memoryview(batch))
    return batch
