"""ShareStatus: what a broker knows of the share-partitions of a group that it serves, for `penstock group describe`.

request   group (length 2)
response  error code 2 | count 4, each: topic (length 2) | partition 4 | start offset 8 | in flight 8 |
          waiting for redelivery 8 | age of the oldest lock in milliseconds 8, -1 without one |
          waiting for the time of their next delivery 8 | waiting for their dead letter 8 |
          redelivered 8 | dead letters: rejected 8, attempts 8, expired 8, overflow 8
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from penstock.errors import ProtocolError
from penstock.wire import primitives as p
from penstock.wire.apis import SHARE_STATUS
from penstock.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader

_NUMBERS = Struct(">iqqqqqqqqqqq")
_STATUS_BYTES = 94


class ShareStatus(NamedTuple):
    topic: str
    partition: int
    start_offset: int
    in_flight: int
    waiting: int
    oldest_lock_ms: int
    delayed: int = 0
    archiving: int = 0
    """Number of records that wait to be written to the dead-letter topic."""
    redelivered: int = 0
    """Number of redeliveries since the leader loaded the share-partition. The counts of dead letters begin
    then too.
    """
    rejected: int = 0
    attempts: int = 0
    expired: int = 0
    overflow: int = 0


def encode_share_status_request(correlation_id: int, client_id: str, group_id: str) -> bytes:
    header = RequestHeader(SHARE_STATUS, 0, correlation_id, client_id)
    return p.frame(encode_request_header(header), p.string(group_id))


def decode_share_status_request(frame: memoryview, position: int) -> str:
    try:
        return Reader(frame, position).string()
    except MALFORMED as error:
        raise ProtocolError(f"malformed ShareStatus request: {error}") from None


def encode_share_status_response(
    correlation_id: int, found: Sequence[ShareStatus], error_code: int = 0
) -> bytes:
    parts = [
        encode_response_header(SHARE_STATUS, 0, correlation_id),
        p.INT16(error_code),
        p.array_length(len(found)),
    ]
    for topic, *numbers in found:
        parts += (p.string(topic), _NUMBERS.pack(*numbers))
    return p.frame(*parts)


def decode_share_status_response(frame: memoryview) -> tuple[int, list[ShareStatus]]:
    """Return the error code and the share-partitions."""
    _, position = decode_response_header(SHARE_STATUS, 0, frame)
    reader = Reader(frame, position, NO_LIMIT)
    try:
        code = reader.int16()
        count = reader.array_length(_STATUS_BYTES)
        return code, [ShareStatus(reader.string(), *reader.unpack(_NUMBERS)) for _ in range(count)]
    except MALFORMED as error:
        raise ProtocolError(f"malformed ShareStatus response: {error}") from None
