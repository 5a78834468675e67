"""AddPartitionsToTxn of clients, versions 0 to 3, coded by hand because every transaction of version 1 begins
with it.

    request    transactional id | producer id 8 | producer epoch 2 | topics [name, partitions [index 4]]
    response   throttle time 4 | topics [name, partitions [index 4 | error code 2]]

Version 3 is flexible. Later versions come from brokers and are decoded by their schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import ProtocolError
from penstock.model import TopicPartition
from penstock.wire import primitives as p
from penstock.wire.reader import MALFORMED, Reader

ADD_PARTITIONS_TO_TXN: Final = 24
FLEXIBLE_FROM: Final = 3
FIRST_VERSION_OF_BROKERS: Final = 4

_PRODUCER = Struct(">qh")
_INDEX = Struct(">i")
_FRAME_START = Struct(">iii")
_FLEXIBLE_FRAME_START = Struct(">iixi")
_RESULT = Struct(">ih")
_FLEXIBLE_RESULT = Struct(">ihx")
_MIN_TOPIC_BYTES = 2
_SIZE_PREFIX = 4


class AddPartitionsRequest(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: list[TopicPartition]
    """Partitions in the order of the request, without duplicates."""


def decode_add_partitions(frame: memoryview, position: int, version: int) -> AddPartitionsRequest:
    reader = Reader(frame, position)
    try:
        return _read(reader, version >= FLEXIBLE_FROM)
    except MALFORMED as error:
        raise ProtocolError(f"malformed AddPartitionsToTxn request: {error}") from None


def _read(reader: Reader, flexible: bool) -> AddPartitionsRequest:
    string = reader.compact_string if flexible else reader.string
    length = reader.compact_array_length if flexible else reader.array_length
    transactional_id = string()
    producer_id, producer_epoch = reader.unpack(_PRODUCER)
    partitions: dict[TopicPartition, None] = {}
    for _ in range(length(_MIN_TOPIC_BYTES)):
        name = string()
        for _ in range(length(_INDEX.size)):
            partitions[TopicPartition(name, reader.int32())] = None
        if flexible:
            reader.skip_tags()
    if flexible:
        reader.skip_tags()
    return AddPartitionsRequest(transactional_id, producer_id, producer_epoch, list(partitions))


def encode_add_partitions_response(
    correlation_id: int, version: int, codes: Mapping[TopicPartition, int]
) -> bytes:
    """Encode a response as a whole frame."""
    flexible = version >= FLEXIBLE_FROM
    string = p.compact_string if flexible else p.string
    count = p.compact_array_length if flexible else p.array_length
    pack = (_FLEXIBLE_RESULT if flexible else _RESULT).pack
    topics = _by_topic(codes)
    parts = [b"", count(len(topics))]
    for name, partitions in topics.items():
        parts += (string(name), count(len(partitions)))
        parts += [pack(partition.partition, codes[partition]) for partition in partitions]
        if flexible:
            parts.append(p.NO_TAGS)
    if flexible:
        parts.append(p.NO_TAGS)
    start = _FLEXIBLE_FRAME_START if flexible else _FRAME_START
    size = start.size - _SIZE_PREFIX + sum(map(len, parts))
    parts[0] = start.pack(size, correlation_id, 0)
    return b"".join(parts)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics
