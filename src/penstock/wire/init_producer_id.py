"""InitProducerId request, coded by hand because of a field of Penstock's own: tag 10000, held (1 byte).

A held transaction is ended by any client that knows its transactional id, producer id and epoch, but by no
timeout. Responses are encoded and decoded by their schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.errors import ProtocolError
from penstock.wire import primitives as p
from penstock.wire.headers import RequestHeader, encode_request_header
from penstock.wire.reader import MALFORMED, Reader

INIT_PRODUCER_ID: Final = 22
HELD_TAG: Final = 10_000
_FIRST_FLEXIBLE: Final = 2
_FIRST_WITH_PRODUCER: Final = 3


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    is_held: bool = False


def decode_init_producer_id(frame: memoryview, position: int, version: int) -> InitProducerIdRequest:
    try:
        return _read(Reader(frame, position), version)
    except MALFORMED as error:
        raise ProtocolError(f"malformed InitProducerId: {error}") from None


def encode_init_producer_id(
    version: int, correlation_id: int, client_id: str | None, request: InitProducerIdRequest
) -> bytes:
    """Encode a request as a whole frame. `is_held` requires version 2 or later."""
    flexible = version >= _FIRST_FLEXIBLE
    string = p.nullable_compact_string if flexible else p.nullable_string
    parts = [string(request.transactional_id), p.INT32(request.transaction_timeout_ms)]
    if version >= _FIRST_WITH_PRODUCER:
        parts += (p.INT64(request.producer_id), p.INT16(request.producer_epoch))
    if flexible:
        held = p.tagged(HELD_TAG, p.boolean(True))
        parts.append(p.unsigned_varint(1) + held if request.is_held else p.NO_TAGS)
    header = RequestHeader(INIT_PRODUCER_ID, version, correlation_id, client_id)
    return p.frame(encode_request_header(header), *parts)


def _read(reader: Reader, version: int) -> InitProducerIdRequest:
    flexible = version >= _FIRST_FLEXIBLE
    transactional_id = reader.nullable_compact_string() if flexible else reader.nullable_string()
    timeout_ms = reader.int32()
    producer_id = producer_epoch = -1
    if version >= _FIRST_WITH_PRODUCER:
        producer_id, producer_epoch = reader.int64(), reader.int16()
    is_held = flexible and _read_held(reader)
    return InitProducerIdRequest(transactional_id, timeout_ms, producer_id, producer_epoch, is_held)


def _read_held(reader: Reader) -> bool:
    is_held = False
    last = -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        if last == HELD_TAG:
            is_held = reader.boolean()
            reader.close_tag(end)
        reader.position = end
    return is_held
