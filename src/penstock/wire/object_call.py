"""ObjectCall: a client asks the owner of a named object, such as a schedule, to describe or change it. Not a
Kafka API.

    request   kind 1 | verb (length 2) | name (length 2) | arguments (length 4), MessagePack
    response  error code 2 | error message (length 2) | answer (length 4), MessagePack

FindCoordinator, with the number of the kind as its key type, finds the owner of a name. The verb `list` has
no name; its answer has the objects that the broker owns, the broker's shards, and the total number of
partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.errors import ProtocolError
from penstock.wire import primitives
from penstock.wire.apis import OBJECT_CALL
from penstock.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader

SCHEDULE: Final = 100
"""Number that identifies schedules as a kind of object. Kafka does not use numbers from 100 on."""
WEBHOOK: Final = 101
"""Number that identifies webhooks as a kind of object."""
LIST: Final = "list"
"""Verb that every kind of object has."""


class ObjectCallRequest(NamedTuple):
    kind: int
    verb: str
    name: str
    arguments: bytes


@dataclass(frozen=True, slots=True)
class ObjectCallResponse:
    error_code: int = 0
    error_message: str = ""
    answer: bytes = b""


def encode_object_call_request(correlation_id: int, client_id: str, request: ObjectCallRequest) -> bytes:
    return primitives.frame(
        encode_request_header(RequestHeader(OBJECT_CALL, 0, correlation_id, client_id)),
        primitives.INT8(request.kind),
        primitives.string(request.verb),
        primitives.string(request.name),
        primitives.bytes_(request.arguments),
    )


def decode_object_call_request(frame: memoryview, position: int) -> ObjectCallRequest:
    reader = Reader(frame, position)
    try:
        return ObjectCallRequest(reader.int8(), reader.string(), reader.string(), bytes(reader.bytes_()))
    except MALFORMED as error:
        raise ProtocolError(f"malformed ObjectCall request: {error}") from None


def encode_object_call_response(correlation_id: int, response: ObjectCallResponse) -> bytes:
    return primitives.frame(
        encode_response_header(OBJECT_CALL, 0, correlation_id),
        primitives.INT16(response.error_code),
        primitives.string(response.error_message),
        primitives.bytes_(response.answer),
    )


def decode_object_call_response(frame: memoryview) -> ObjectCallResponse:
    _, position = decode_response_header(OBJECT_CALL, 0, frame)
    reader = Reader(frame, position, NO_LIMIT)
    try:
        return ObjectCallResponse(reader.int16(), reader.string(), bytes(reader.bytes_()))
    except MALFORMED as error:
        raise ProtocolError(f"malformed ObjectCall response: {error}") from None
