"""QueueSettle: settle, release or extend messages that QueueReceive has acquired, at the leader of their
partition.

    request   group (length 2) | settlements, count 4, each: topic id 16 | partition 4 | token 16 | first offset 8 |
              last offset 8 | action 1 | delay ms 8 | reason (length 2)
    response  error code 2 | error message (length 2) | results, count 4, each: error code 2 | message (length 2)

The action is an acknowledge type of KIP-932, 5 if the message has expired, or 6 if the receiver did not try
the message. Actions 5 and 6 do not count the delivery as an attempt. `delay ms` replaces the back-off of a
release and the lock time of a renewal; -1 means those of the group. A result is sent when its settlement is
durable. Results are in the order of the settlements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import ProtocolError
from penstock.wire import primitives as p
from penstock.wire.apis import QUEUE_SETTLE
from penstock.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader

GROUP_DELAY: Final = -1
EXPIRE: Final = 5
RETURN: Final = 6
_SETTLEMENT = Struct(">16si16sqqbq")
_RESULT_BYTES: Final = 4


class QueueSettlement(NamedTuple):
    topic_id: UUID
    partition: int
    token: bytes
    first_offset: int
    last_offset: int
    action: int
    delay_ms: int = GROUP_DELAY
    reason: str = ""


class QueueSettleRequest(NamedTuple):
    group_id: str
    settlements: tuple[QueueSettlement, ...]


class SettleResult(NamedTuple):
    error_code: int = 0
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class QueueSettleResponse:
    error_code: int = 0
    error_message: str = ""
    results: Sequence[SettleResult] = ()


def encode_queue_settle_request(correlation_id: int, client_id: str, request: QueueSettleRequest) -> bytes:
    parts = [
        encode_request_header(RequestHeader(QUEUE_SETTLE, 0, correlation_id, client_id)),
        p.string(request.group_id),
        p.array_length(len(request.settlements)),
    ]
    for topic_id, *fields, reason in request.settlements:
        parts += (_SETTLEMENT.pack(topic_id.bytes, *fields), p.string(reason))
    return p.frame(*parts)


def decode_queue_settle_request(frame: memoryview, position: int) -> QueueSettleRequest:
    reader = Reader(frame, position)
    try:
        group_id = reader.string()
        count = reader.array_length(_SETTLEMENT.size + 2)
        return QueueSettleRequest(group_id, tuple(_read_settlement(reader) for _ in range(count)))
    except MALFORMED as error:
        raise ProtocolError(f"malformed QueueSettle request: {error}") from None


def _read_settlement(reader: Reader) -> QueueSettlement:
    topic_id, partition, token, first, last, action, delay_ms = reader.unpack(_SETTLEMENT)
    place = UUID(bytes=topic_id), partition, token, first, last
    return QueueSettlement(*place, action, delay_ms, reader.string())


def encode_queue_settle_response(correlation_id: int, response: QueueSettleResponse) -> bytes:
    parts = [
        encode_response_header(QUEUE_SETTLE, 0, correlation_id),
        p.INT16(response.error_code),
        p.string(response.error_message),
        p.array_length(len(response.results)),
    ]
    for code, message in response.results:
        parts += (p.INT16(code), p.string(message))
    return p.frame(*parts)


def decode_queue_settle_response(frame: memoryview) -> QueueSettleResponse:
    _, position = decode_response_header(QUEUE_SETTLE, 0, frame)
    reader = Reader(frame, position, NO_LIMIT)
    try:
        code, message = reader.int16(), reader.string()
        count = reader.array_length(_RESULT_BYTES)
        return QueueSettleResponse(
            code, message, [SettleResult(reader.int16(), reader.string()) for _ in range(count)]
        )
    except MALFORMED as error:
        raise ProtocolError(f"malformed QueueSettle response: {error}") from None
