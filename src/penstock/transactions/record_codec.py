"""Codec of the records of `__transaction_state`, in Kafka's layout, so that tools which read that topic work.

    key     version 2 (0) | transactional id
    value   version 2 (1) | producer id 8, epoch 2, timeout ms 4, state 1, partitions? [topic, [index 4]], update ms 8,
                            start ms 8
            tags            0: earlier producer id 8, 1: next producer id 8, 2: client's transaction version 2
                            ours: 10000: held 1, 10001: epoch 2 that goes with the earlier producer id

Version 1 of the value is flexible (KIP-482); version 0 has the same fields with lengths of fixed width and no
tags. For any bytes, `decode_record` raises nothing but UnknownRecord. Pure; any thread.
"""

from __future__ import annotations

from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import ProtocolError
from penstock.model import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from penstock.state_log.replaying import UnknownRecord
from penstock.transactions.transaction import NO_EPOCH, NOBODY, Identity, Transaction, TransactionState
from penstock.wire import primitives as p
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader

_HELD_TAG: Final = 10_000
_EARLIER_ID_TAG, _NEXT_ID_TAG, _CLIENT_VERSION_TAG, _EARLIER_EPOCH_TAG = 0, 1, 2, 10_001
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1
_HEAD: Final = Struct(">hqhib")


_place = attrgetter("topic", "partition")


class TransactionRecord(NamedTuple):
    transactional_id: str
    value: Transaction | None
    """State of the transactional id; None is a tombstone."""


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Encode key and value; a tombstone has no value."""
    key = p.INT16(_KEY_VERSION) + p.string(record.transactional_id)
    return key, None if record.value is None else _encode(record.value)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord:
    try:
        reader = Reader(memoryview(key))
        version = reader.int16()
        if version != _KEY_VERSION:
            raise UnknownRecord(f"unknown key version {version}")
        transactional_id = reader.string()
        _check_end(reader)
        if value is None:
            return TransactionRecord(transactional_id, None)
        reader = Reader(memoryview(value), max_elements=NO_LIMIT)
        transaction = _decode(reader)
        _check_end(reader)
    except (ProtocolError, *MALFORMED) as error:
        raise UnknownRecord(f"damaged record: {error}") from error
    return TransactionRecord(transactional_id, transaction)


def _check_end(reader: Reader) -> None:
    if reader.position != len(reader.data):
        raise UnknownRecord("bytes after the last field")


def _encode(value: Transaction) -> bytes:
    producer_id, epoch = value.producer
    head = _HEAD.pack(_VALUE_VERSION, producer_id, epoch, value.timeout_ms, value.state)
    times = p.INT64(value.update_ms) + p.INT64(value.start_ms)
    return head + _encode_partitions(value) + times + _encode_tags(value)


def _encode_partitions(value: Transaction) -> bytes:
    if value.state is TransactionState.EMPTY:
        return p.compact_array_length(-1)
    topics: dict[str, list[int]] = {}
    for partition in sorted(value.partitions, key=_place):
        topics.setdefault(partition.topic, []).append(partition.partition)
    parts = [p.compact_array_length(len(topics))]
    for topic, indexes in topics.items():
        parts += (p.compact_string(topic), p.compact_array_length(len(indexes)), *map(p.INT32, indexes))
        parts.append(p.NO_TAGS)
    return b"".join(parts)


def _encode_tags(value: Transaction) -> bytes:
    tags = []
    if value.earlier != NOBODY:
        tags.append(p.tagged(_EARLIER_ID_TAG, p.INT64(value.earlier.producer_id)))
    if value.next_producer_id != NO_PRODUCER_ID:
        tags.append(p.tagged(_NEXT_ID_TAG, p.INT64(value.next_producer_id)))
    if value.version:
        tags.append(p.tagged(_CLIENT_VERSION_TAG, p.INT16(value.version)))
    if value.is_held:
        tags.append(p.tagged(_HELD_TAG, p.boolean(True)))
    if value.earlier != NOBODY:
        tags.append(p.tagged(_EARLIER_EPOCH_TAG, p.INT16(value.earlier.epoch)))
    return p.unsigned_varint(len(tags)) + b"".join(tags)


def _decode(reader: Reader) -> Transaction:
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION:
        raise UnknownRecord(f"unknown value version {version}")
    flexible = version == _VALUE_VERSION
    producer = Identity(ProducerId(reader.int64()), ProducerEpoch(reader.int16()))
    timeout_ms, state = reader.int32(), reader.int8()
    if state not in _STATES:
        raise UnknownRecord(f"unknown transaction state {state}")
    partitions = _decode_partitions(reader, flexible)
    update_ms, start_ms = reader.int64(), reader.int64()
    tags = _decode_tags(reader) if flexible else {}
    earlier = Identity(
        ProducerId(tags.get(_EARLIER_ID_TAG, NO_PRODUCER_ID)),
        ProducerEpoch(tags.get(_EARLIER_EPOCH_TAG, NO_EPOCH)),
    )
    return Transaction(
        producer,
        timeout_ms,
        TransactionState(state),
        partitions,
        start_ms,
        update_ms,
        tags.get(_CLIENT_VERSION_TAG, 0),
        earlier if NO_EPOCH not in earlier else NOBODY,
        ProducerId(tags.get(_NEXT_ID_TAG, NO_PRODUCER_ID)),
        bool(tags.get(_HELD_TAG, 0)),
    )


def _decode_partitions(reader: Reader, flexible: bool) -> frozenset[TopicPartition]:
    length = reader.nullable_compact_array_length if flexible else reader.nullable_array_length
    string = reader.compact_string if flexible else reader.string
    indexes_length = reader.compact_array_length if flexible else reader.array_length
    partitions: set[TopicPartition] = set()
    for _ in range(length()):
        topic = string()
        partitions.update(TopicPartition(topic, reader.int32()) for _ in range(indexes_length(4)))
        if flexible:
            reader.skip_tags()
    return frozenset(partitions)


def _decode_tags(reader: Reader) -> dict[int, int]:
    """Values by tag, for the tags that this broker knows. All of them are numbers."""
    tags: dict[int, int] = {}
    last = -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        if last in _TAGS:
            tags[last] = int.from_bytes(reader.data[reader.position : end], "big", signed=True)
            if end - reader.position != _TAGS[last]:
                raise UnknownRecord(f"tag {last} has {end - reader.position} bytes")
        reader.position = end
    return tags


_STATES: Final = frozenset(TransactionState)
_TAGS: Final = {
    _EARLIER_ID_TAG: 8,
    _NEXT_ID_TAG: 8,
    _CLIENT_VERSION_TAG: 2,
    _HELD_TAG: 1,
    _EARLIER_EPOCH_TAG: 2,
}
