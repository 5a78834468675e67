"""The records of `__share_group_state` as bytes, in Kafka's layout.

    key     kind 2 | group | topic id 16 | partition 4        value   version 2 | fields | tag 0: complete count 4
    0       snapshot                                          0  snapshot epoch 4, state epoch 4, leader epoch 4,
                                                                 start offset 8, created 8, written 8, batches
    1       update                                            0  snapshot epoch 4, leader epoch 4, start offset 8,
                                                                 batches
                                                              batch: first 8, last 8, state 1, delivery count 2,
                                                                 tag 100: time of the next delivery 8,
                                                                 tag 101: reason of the dead letter 2, text,
                                                                 tag 102: time left until the next delivery 8
                                                              tag 100: producer id 8 and sequence 4 of dead letters,
                                                                 ranges: count 4, each first 8, last 8

Strings in keys have lengths of fixed width; values are flexible (KIP-482). `decode_record` raises only UnknownRecord,
even for damaged bytes. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from penstock.errors import ProtocolError
from penstock.model import NO_TOPIC_ID, ShareKey, TopicId
from penstock.queues.records import SnapshotValue, StateRecord, StateValue, UpdateValue
from penstock.queues.states import NO_REASON, Letters, Reason, StateBatch
from penstock.state_log.replaying import UnknownRecord
from penstock.wire import primitives as p
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader

SNAPSHOT_KIND: Final = 0
UPDATE_KIND: Final = 1
_VERSION: Final = 0
_COMPLETE_COUNT_TAG: Final = 0
_READY_TAG: Final = 100
_REASON_TAG: Final = 101
_WAIT_TAG: Final = 102
_LETTERS_TAG: Final = 100
"""Tag of the dead letters. Only Penstock uses tags from 100 on; Kafka skips them."""

_SNAPSHOT = Struct(">hiiiqqq")
_UPDATE = Struct(">hiiq")
_BATCH = Struct(">qqbhB")
_BATCH_BYTES = _BATCH.size
_BATCH_FIELDS = Struct(">qqbh")
_LETTERS = Struct(">qii")
_LETTER_RANGE = Struct(">qq")


_NO_KEY = ShareKey("", NO_TOPIC_ID, 0)


def encode_record(record: StateRecord) -> tuple[bytes, bytes | None]:
    """Encode a record as key and value; the value of a tombstone is None."""
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
    tags = b"\x01" if value.letters is None else b"\x02"
    tags += p.tagged(_COMPLETE_COUNT_TAG, p.INT32(value.delivery_complete_count))
    if value.letters is not None:
        tags += p.tagged(_LETTERS_TAG, _encode_letters(value.letters))
    return key, head + _encode_batches(value.batches) + tags


def _encode_letters(letters: Letters) -> bytes:
    head = _LETTERS.pack(letters.producer_id, letters.sequence, len(letters.ranges))
    return head + b"".join(_LETTER_RANGE.pack(*each) for each in letters.ranges)


def encode_key(kind: int, key: ShareKey) -> bytes:
    return p.INT16(kind) + p.string(key.group_id) + key.topic_id.bytes + p.INT32(key.partition)


def _encode_batches(batches: Sequence[StateBatch]) -> bytes:
    return p.compact_array_length(len(batches)) + b"".join(map(_encode_batch, batches))


def _encode_batch(batch: StateBatch) -> bytes:
    tags = []
    if batch.ready_ms:
        tags.append(p.tagged(_READY_TAG, p.INT64(batch.ready_ms)))
    if batch.reason != NO_REASON:
        tags.append(p.tagged(_REASON_TAG, p.INT16(batch.reason.code) + batch.reason.text.encode()))
    if batch.wait_ms:
        tags.append(p.tagged(_WAIT_TAG, p.INT64(batch.wait_ms)))
    if not tags:
        return _BATCH.pack(*batch[:4], 0)
    return _BATCH_FIELDS.pack(*batch[:4]) + p.unsigned_varint(len(tags)) + b"".join(tags)


def encode_value(value: StateValue) -> bytes:
    """Encode a value for requests between brokers: the kind, followed by the value of the record."""
    encoded = encode_record(StateRecord(_NO_KEY, value))[1]
    assert encoded is not None
    return p.INT16(UPDATE_KIND if isinstance(value, UpdateValue) else SNAPSHOT_KIND) + encoded


def decode_value(content: bytes) -> StateValue:
    """Decode the result of `encode_value`; ProtocolError for other bytes."""
    reader = Reader(memoryview(content), max_elements=NO_LIMIT)
    try:
        return _decode_value(reader.int16(), reader)
    except (UnknownRecord, *MALFORMED) as error:
        raise ProtocolError(f"malformed share state: {error}") from None


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
        count, letters = _read_tags(reader)
        decoded = SnapshotValue(
            epoch, state_epoch, leader_epoch, start, count, created_ms, written_ms, batches, letters
        )
    elif kind == UPDATE_KIND:
        version, epoch, leader_epoch, start = reader.unpack(_UPDATE)
        batches = _decode_batches(reader)
        count, letters = _read_tags(reader)
        decoded = UpdateValue(epoch, leader_epoch, start, count, batches, letters)
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
        batch = StateBatch(first, last, state, count)
        if tags:
            reader.position -= 1
            batch = _read_batch_tags(reader, batch)
        batches.append(batch)
    return tuple(batches)


def _read_batch_tags(reader: Reader, batch: StateBatch) -> StateBatch:
    last = -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        if last == _READY_TAG:
            batch = batch._replace(ready_ms=reader.int64())
            reader.close_tag(end)
        elif last == _REASON_TAG:
            code = reader.int16()
            text = bytes(reader.data[reader.position : end]).decode(errors="replace")
            batch = batch._replace(reason=Reason(code, text))
        elif last == _WAIT_TAG:
            batch = batch._replace(wait_ms=reader.int64())
            reader.close_tag(end)
        reader.position = end
    return batch


def _read_tags(reader: Reader) -> tuple[int, Letters | None]:
    """Read the tags: the delivery-complete count, and the dead letters that are being written."""
    letters: Letters | None = None
    count, last = 0, -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        if last == _COMPLETE_COUNT_TAG:
            count = reader.int32()
            reader.close_tag(end)
        elif last == _LETTERS_TAG:
            producer_id, sequence, ranges = reader.unpack(_LETTERS)
            if ranges < 0 or ranges * _LETTER_RANGE.size != end - reader.position:
                raise UnknownRecord("the dead letters have another length")
            letters = Letters(
                producer_id, sequence, tuple(reader.unpack(_LETTER_RANGE) for _ in range(ranges))
            )
        reader.position = end
    return count, letters


def _check_end(reader: Reader) -> None:
    if reader.position != len(reader.data):
        raise UnknownRecord("bytes after the last field")
