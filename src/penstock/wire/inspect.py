"""Inspect: a gateway asks one broker about its own state, for lists, charts and the console.

    request   question (length 2) | arguments (length 4), MessagePack
    response  error code 2 | error message (length 2) | answer (length 4), MessagePack

The question is a name. `server/inspection` and `internal_client/inspection.py` define its arguments and its
answer. The size of every answer is limited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import ProtocolError
from penstock.wire import primitives
from penstock.wire.apis import INSPECT
from penstock.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader


class InspectRequest(NamedTuple):
    question: str
    arguments: bytes


@dataclass(frozen=True, slots=True)
class InspectResponse:
    error_code: int = 0
    error_message: str = ""
    answer: bytes = b""


def encode_inspect_request(correlation_id: int, client_id: str, request: InspectRequest) -> bytes:
    return primitives.frame(
        encode_request_header(RequestHeader(INSPECT, 0, correlation_id, client_id)),
        primitives.string(request.question),
        primitives.bytes_(request.arguments),
    )


def decode_inspect_request(frame: memoryview, position: int) -> InspectRequest:
    reader = Reader(frame, position)
    try:
        return InspectRequest(reader.string(), bytes(reader.bytes_()))
    except MALFORMED as error:
        raise ProtocolError(f"malformed Inspect request: {error}") from None


def encode_inspect_response(correlation_id: int, response: InspectResponse) -> bytes:
    return primitives.frame(
        encode_response_header(INSPECT, 0, correlation_id),
        primitives.INT16(response.error_code),
        primitives.string(response.error_message),
        primitives.bytes_(response.answer),
    )


def decode_inspect_response(frame: memoryview) -> InspectResponse:
    _, position = decode_response_header(INSPECT, 0, frame)
    reader = Reader(frame, position, NO_LIMIT)
    try:
        return InspectResponse(reader.int16(), reader.string(), bytes(reader.bytes_()))
    except MALFORMED as error:
        raise ProtocolError(f"malformed Inspect response: {error}") from None
