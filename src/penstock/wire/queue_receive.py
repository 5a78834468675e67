"""QueueReceive: acquire messages of a queue at the leader of its partitions, without a session.

    request   group (length 2) | topic id 16 | max records 4 | max bytes 4 | max wait ms 4 | lock ms 4 | kind 1 |
              partitions, count 4, each 4
    response  error code 2 | error message (length 2) | token 16 | lock ms 4 |
              partitions, count 4, each: partition 4 | error code 2 | error message (length 2) |
              ranges, count 4, each: first offset 8 | last offset 8 | delivery count 2 | state 1 |
              records (length 4)

Kind 0 acquires messages, 1 shows the next ones without acquiring them, 2 only waits until some are available.
A `lock ms` of -1 means the lock time of the group. The token identifies this delivery, and a settlement must
contain it. Records are whole batches; the client ignores offsets that are in no range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import ProtocolError
from penstock.records.log_slice import LogSlice
from penstock.wire import primitives as p
from penstock.wire.apis import QUEUE_RECEIVE
from penstock.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader

TOKEN_BYTES: Final = 16
GROUP_LOCK: Final = -1
_LIMITS = Struct(">iiiib")
_RANGE = Struct(">qqhb")
_PARTITION_BYTES: Final = 16
_SIZE_BYTES: Final = 4


class ReceiveKind(IntEnum):
    TAKE = 0
    PEEK = 1
    WAIT = 2


class QueueReceiveRequest(NamedTuple):
    group_id: str
    topic_id: UUID
    partitions: tuple[int, ...]
    max_records: int
    max_bytes: int
    max_wait_ms: int = 0
    lock_ms: int = GROUP_LOCK
    kind: int = ReceiveKind.TAKE


class ReceivedRange(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int
    state: int = 1
    """State of the records in the range, one of `queues.states`."""


@dataclass(slots=True)
class ReceivedPartition:
    partition: int
    error_code: int = 0
    error_message: str = ""
    ranges: Sequence[ReceivedRange] = ()
    records: Sequence[bytes | memoryview | LogSlice] = ()


@dataclass(slots=True)
class QueueReceiveResponse:
    error_code: int = 0
    error_message: str = ""
    token: bytes = bytes(TOKEN_BYTES)
    lock_ms: int = 0
    partitions: list[ReceivedPartition] = field(default_factory=list)


def encode_queue_receive_request(correlation_id: int, client_id: str, request: QueueReceiveRequest) -> bytes:
    limits = request.max_records, request.max_bytes, request.max_wait_ms, request.lock_ms, request.kind
    return p.frame(
        encode_request_header(RequestHeader(QUEUE_RECEIVE, 0, correlation_id, client_id)),
        p.string(request.group_id),
        request.topic_id.bytes,
        _LIMITS.pack(*limits),
        p.array_length(len(request.partitions)),
        *map(p.INT32, request.partitions),
    )


def decode_queue_receive_request(frame: memoryview, position: int) -> QueueReceiveRequest:
    reader = Reader(frame, position)
    try:
        group_id, topic_id = reader.string(), reader.uuid()
        max_records, max_bytes, max_wait_ms, lock_ms, kind = reader.unpack(_LIMITS)
        partitions = tuple(reader.int32() for _ in range(reader.array_length(4)))
    except MALFORMED as error:
        raise ProtocolError(f"malformed QueueReceive request: {error}") from None
    return QueueReceiveRequest(
        group_id, topic_id, partitions, max_records, max_bytes, max_wait_ms, lock_ms, kind
    )


def encode_queue_receive_response(
    correlation_id: int, response: QueueReceiveResponse
) -> list[bytes | bytearray | memoryview | LogSlice]:
    """Return the whole frame as a list of parts. Records stay slices of their files."""
    first = gathered = bytearray(_SIZE_BYTES)
    parts: list[bytes | bytearray | memoryview | LogSlice] = [first]
    gathered += encode_response_header(QUEUE_RECEIVE, 0, correlation_id)
    gathered += p.INT16(response.error_code) + p.string(response.error_message)
    gathered += response.token + p.INT32(response.lock_ms) + p.array_length(len(response.partitions))
    for each in response.partitions:
        gathered += p.INT32(each.partition) + p.INT16(each.error_code) + p.string(each.error_message)
        gathered += p.array_length(len(each.ranges)) + b"".join(_RANGE.pack(*found) for found in each.ranges)
        gathered += p.INT32(sum(map(len, each.records)))
        if each.records:
            gathered = bytearray()
            parts += (*each.records, gathered)
    first[:_SIZE_BYTES] = p.INT32(sum(map(len, parts)) - _SIZE_BYTES)
    return parts


def decode_queue_receive_response(frame: memoryview) -> QueueReceiveResponse:
    """Decode a response. The records of the partitions are views of the received frame."""
    _, position = decode_response_header(QUEUE_RECEIVE, 0, frame)
    reader = Reader(frame, position, NO_LIMIT)
    try:
        head = reader.int16(), reader.string(), reader.uuid().bytes, reader.int32()
        count = reader.array_length(_PARTITION_BYTES)
        return QueueReceiveResponse(*head, [_read_partition(reader) for _ in range(count)])
    except MALFORMED as error:
        raise ProtocolError(f"malformed QueueReceive response: {error}") from None


def _read_partition(reader: Reader) -> ReceivedPartition:
    head = reader.int32(), reader.int16(), reader.string()
    ranges = [ReceivedRange(*reader.unpack(_RANGE)) for _ in range(reader.array_length(_RANGE.size))]
    return ReceivedPartition(*head, ranges, (reader.bytes_(),))
