"""FetchByKey: reads the records of single keys in topics with `index.by.key`, and waits for the next one.

    request   lookups, count 4, each: id 4 | topic id 16 | partition 4 | current leader epoch 4 | from offset 8 |
              max records 4 | max bytes 4 | max wait ms 4 | key (length 4)
              ids of cancelled lookups, count 4, each 4
    response  results, count 4, each: id 4 | error code 2 | high watermark 8 | log start offset 8 | next offset 8 |
              is complete 1 | records (length 4)

The client numbers the lookups of a connection. A request waits at the broker for the first result of any
lookup, and the next request ends that wait. A result is sent, as soon as it is ready, in the response to the
waiting request. So one connection carries any number of waiting lookups.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import ProtocolError
from penstock.model import TopicId
from penstock.wire import primitives
from penstock.wire.apis import FETCH_BY_KEY
from penstock.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader

_LOOKUP = Struct(">i16siiqiii")
_RESULT = Struct(">ihqqq?")
_LENGTH_BYTES: Final = 4


class KeyLookup(NamedTuple):
    """A lookup of the committed records of a key, starting at `from_offset`. The limits apply, but at least
    one record is returned.

    If there is no record, the broker waits for one for up to `max_wait_ms`.
    """

    id: int
    topic_id: TopicId
    partition: int
    key: bytes
    from_offset: int = 0
    max_records: int = 1000
    max_bytes: int = 1024 * 1024
    max_wait_ms: int = 0
    current_leader_epoch: int = -1
    """Leader epoch that the client knows, so that a former leader refuses the lookup; -1 for no check."""


class KeyResult(NamedTuple):
    id: int
    error_code: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    next_offset: int = -1
    """Offset at which to continue the lookup."""
    is_complete: bool = False
    """True if no committed record of the key is at or after `next_offset`."""
    records: bytes | memoryview = b""
    """Record batches that contain only records of the key, with their original offsets."""


@dataclass(frozen=True, slots=True)
class FetchByKeyRequest:
    lookups: tuple[KeyLookup, ...]
    given_up: tuple[int, ...] = ()


def encode_fetch_by_key_request(correlation_id: int, client_id: str, request: FetchByKeyRequest) -> bytes:
    parts = [
        encode_request_header(RequestHeader(FETCH_BY_KEY, 0, correlation_id, client_id)),
        primitives.array_length(len(request.lookups)),
    ]
    for lookup in request.lookups:
        place = lookup.topic_id.bytes, lookup.partition, lookup.current_leader_epoch, lookup.from_offset
        limits = lookup.max_records, lookup.max_bytes, lookup.max_wait_ms
        parts.append(_LOOKUP.pack(lookup.id, *place, *limits))
        parts.append(primitives.bytes_(lookup.key))
    parts.append(primitives.array_length(len(request.given_up)))
    parts += map(primitives.INT32, request.given_up)
    return primitives.frame(*parts)


def decode_fetch_by_key_request(frame: memoryview, position: int) -> FetchByKeyRequest:
    reader = Reader(frame, position)
    try:
        count = reader.array_length(_LOOKUP.size + _LENGTH_BYTES)
        lookups = tuple(_read_lookup(reader) for _ in range(count))
        given_up = tuple(reader.int32() for _ in range(reader.array_length(_LENGTH_BYTES)))
    except MALFORMED as error:
        raise ProtocolError(f"malformed FetchByKey request: {error}") from None
    return FetchByKeyRequest(lookups, given_up)


def _read_lookup(reader: Reader) -> KeyLookup:
    start = reader.position
    lookup_id, _, partition, leader_epoch, from_offset, max_records, max_bytes, max_wait_ms = reader.unpack(
        _LOOKUP
    )
    end, reader.position = reader.position, start + _LENGTH_BYTES
    topic_id = TopicId(reader.uuid())
    reader.position = end
    where = partition, bytes(reader.bytes_()), from_offset
    return KeyLookup(lookup_id, topic_id, *where, max_records, max_bytes, max_wait_ms, leader_epoch)


def encode_fetch_by_key_response(correlation_id: int, results: list[KeyResult]) -> bytes:
    parts: list[bytes | memoryview] = [
        encode_response_header(FETCH_BY_KEY, 0, correlation_id),
        primitives.array_length(len(results)),
    ]
    for result in results:
        parts.append(
            _RESULT.pack(
                result.id,
                result.error_code,
                result.high_watermark,
                result.log_start_offset,
                result.next_offset,
                result.is_complete,
            )
        )
        parts += (primitives.INT32(len(result.records)), result.records)
    return primitives.frame(*parts)


def decode_fetch_by_key_response(frame: memoryview) -> list[KeyResult]:
    """Decode a response. The `records` of the results are views of the received frame."""
    _, position = decode_response_header(FETCH_BY_KEY, 0, frame)
    reader = Reader(frame, position, NO_LIMIT)
    try:
        count = reader.array_length(_RESULT.size + _LENGTH_BYTES)
        return [_read_result(reader) for _ in range(count)]
    except MALFORMED as error:
        raise ProtocolError(f"malformed FetchByKey response: {error}") from None


def _read_result(reader: Reader) -> KeyResult:
    lookup_id, error_code, high_watermark, log_start, next_offset, is_complete = reader.unpack(_RESULT)
    offsets = high_watermark, log_start, next_offset
    return KeyResult(lookup_id, error_code, *offsets, is_complete, reader.bytes_())
