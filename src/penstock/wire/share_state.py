"""ShareState: the leader of a partition reads or writes the state of a share-partition at its share
coordinator.

    request   group (length 2) | topic id 16 | partition 4 | state epoch 4 | leader epoch 4 | update (length 4)
    response  error code 2 | error message (length 2) | snapshot (length 4)

A request without an update reads the state. Update and snapshot are encoded as in `__share_group_state`,
including fields that Kafka's ReadShareGroupState and WriteShareGroupState lack. Used between brokers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.errors import ProtocolError
from penstock.wire import primitives as p
from penstock.wire.apis import SHARE_STATE
from penstock.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from penstock.wire.reader import MALFORMED, NO_LIMIT, Reader


class ShareStateRequest(NamedTuple):
    group_id: str
    topic_id: UUID
    partition: int
    state_epoch: int
    leader_epoch: int
    update: bytes
    """Changes to store; empty to read."""


@dataclass(frozen=True, slots=True)
class ShareStateResponse:
    error_code: int = 0
    error_message: str = ""
    snapshot: bytes = b""


def encode_share_state_request(correlation_id: int, client_id: str, request: ShareStateRequest) -> bytes:
    return p.frame(
        encode_request_header(RequestHeader(SHARE_STATE, 0, correlation_id, client_id)),
        p.string(request.group_id),
        request.topic_id.bytes,
        p.INT32(request.partition),
        p.INT32(request.state_epoch),
        p.INT32(request.leader_epoch),
        p.bytes_(request.update),
    )


def decode_share_state_request(frame: memoryview, position: int) -> ShareStateRequest:
    reader = Reader(frame, position)
    try:
        place = reader.string(), reader.uuid(), reader.int32()
        return ShareStateRequest(*place, reader.int32(), reader.int32(), bytes(reader.bytes_()))
    except MALFORMED as error:
        raise ProtocolError(f"malformed ShareState request: {error}") from None


def encode_share_state_response(correlation_id: int, response: ShareStateResponse) -> bytes:
    return p.frame(
        encode_response_header(SHARE_STATE, 0, correlation_id),
        p.INT16(response.error_code),
        p.string(response.error_message),
        p.bytes_(response.snapshot),
    )


def decode_share_state_response(frame: memoryview) -> ShareStateResponse:
    _, position = decode_response_header(SHARE_STATE, 0, frame)
    reader = Reader(frame, position, NO_LIMIT)
    try:
        return ShareStateResponse(reader.int16(), reader.string(), bytes(reader.bytes_()))
    except MALFORMED as error:
        raise ProtocolError(f"malformed ShareState response: {error}") from None
