"""The records of `__share_group_state` as bytes, in Kafka's layout.

    key     kind 2 | group | topic id 16 | partition 4        value   version 2 | fields | tag 0: complete count 4
    0       snapshot                                          0  snapshot epoch 4, state epoch 4, leader epoch 4,
                                                                 start offset 8, created 8, written 8, batches
    1       update                                            0  snapshot epoch 4, leader epoch 4, start offset 8,
                                                                 batches
                                                              batch: first 8, last 8, state 1, delivery count 2

Keys have lengths of fixed width, values are flexible (KIP-482). Whatever the bytes are, `decode_record` raises nothing
but UnknownRecord. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from penstock.errors import ProtocolError
from penstock.model import ShareKey, TopicId
from penstock.queues.records import SnapshotValue, StateRecord, StateValue, UpdateValue
from penstock.queues.states import StateBatch
from penstock.state_log.replaying import UnknownRecord
from penstock.wire import primitives as p
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader

SNAPSHOT_KIND: Final = 0
UPDATE_KIND: Final = 1
_VERSION: Final = 0
_COMPLETE_COUNT_TAG: Final = 0

_SNAPSHOT = Struct(">hiiiqqq")
_UPDATE = Struct(">hiiq")
_BATCH = Struct(">qqbhB")
_BATCH_BYTES = _BATCH.size


def encode_record(record: StateRecord) -> tuple[bytes, bytes | None]:
    """Encode key and value; a tombstone has no value."""
    value = record.value
    kind = UPDATE_KIND if isinstance(value, UpdateValue) else SNAPSHOT_KIND
    key = encode_key(kind, record.key)
    if value is None:
        return key, None
    if isinstance(value, SnapshotValue):
        head = _SNAPSHOT.pack(
            _VERSION,
            value.snapshot_epoch,
            value.state_epoch,
            value.leader_epoch,
            value.start_offset,
            value.create_timestamp_ms,
            value.write_timestamp_ms,
        )
    else:
        head = _UPDATE.pack(_VERSION, value.snapshot_epoch, value.leader_epoch, value.start_offset)
    tags = b"\x01" + p.tagged(_COMPLETE_COUNT_TAG, p.INT32(value.delivery_complete_count))
    return key, head + _encode_batches(value.batches) + tags


def encode_key(kind: int, key: ShareKey) -> bytes:
    return p.INT16(kind) + p.string(key.group_id) + key.topic_id.bytes + p.INT32(key.partition)


def _encode_batches(batches: Sequence[StateBatch]) -> bytes:
    return p.compact_array_length(len(batches)) + b"".join(_BATCH.pack(*batch, 0) for batch in batches)


def decode_record(key: bytes, value: bytes | None) -> StateRecord:
    try:
        reader = Reader(memoryview(key))
        kind = reader.int16()
        share_key = ShareKey(reader.string(), TopicId(reader.uuid()), reader.int32())
        _check_end(reader)
        if value is None:
            if kind != SNAPSHOT_KIND:
                raise UnknownRecord(f"tombstone of record kind {kind}")
            return StateRecord(share_key, None)
        return StateRecord(share_key, _decode_value(kind, Reader(memoryview(value), max_elements=NO_LIMIT)))
    except (ProtocolError, *MALFORMED) as error:
        raise UnknownRecord(f"damaged record: {error}") from error


def _decode_value(kind: int, reader: Reader) -> StateValue:
    decoded: StateValue
    if kind == SNAPSHOT_KIND:
        version, epoch, state_epoch, leader_epoch, start, created_ms, written_ms = reader.unpack(_SNAPSHOT)
        batches = _decode_batches(reader)
        count = _read_complete_count(reader)
        decoded = SnapshotValue(
            epoch, state_epoch, leader_epoch, start, count, created_ms, written_ms, batches
        )
    elif kind == UPDATE_KIND:
        version, epoch, leader_epoch, start = reader.unpack(_UPDATE)
        batches = _decode_batches(reader)
        decoded = UpdateValue(epoch, leader_epoch, start, _read_complete_count(reader), batches)
    else:
        raise UnknownRecord(f"unknown record kind {kind}")
    if version != _VERSION:
        raise UnknownRecord(f"unknown value version {version}")
    _check_end(reader)
    return decoded


def _decode_batches(reader: Reader) -> tuple[StateBatch, ...]:
    batches = []
    for _ in range(reader.compact_array_length(_BATCH_BYTES)):
        first, last, state, count, tags = reader.unpack(_BATCH)
        if tags:
            reader.position -= 1
            reader.skip_tags()
        batches.append(StateBatch(first, last, state, count))
    return tuple(batches)


def _read_complete_count(reader: Reader) -> int:
    count, last = 0, -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        if last == _COMPLETE_COUNT_TAG:
            count = reader.int32()
            reader.close_tag(end)
        reader.position = end
    return count


def _check_end(reader: Reader) -> None:
    if reader.position != len(reader.data):
        raise UnknownRecord("bytes after the last field")
