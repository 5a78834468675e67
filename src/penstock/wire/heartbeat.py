"""Heartbeat, versions 0 to 4, coded by hand because a broker reads thousands of these small requests a
second.

    request   group id | generation 4 | member id | instance id (from 3) | tags (from 4)
    response  size 4 | correlation id 4 | tags (from 4) | throttle time 4 (from 1) | error code 2 | tags (from 4)

Strings carry their length, which is compact from version 4.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import ProtocolError
from penstock.wire.reader import MALFORMED, Reader

THROTTLE_TIME_FROM: Final = 1
INSTANCE_ID_FROM: Final = 3
FLEXIBLE_FROM: Final = 4
NO_THROTTLE_TIME_MS: Final = 0

_FIRST = Struct(">iih")
_WITH_THROTTLE_TIME = Struct(">iiih")
_FLEXIBLE = Struct(">iixihx")
_SIZE_PREFIX = 4


class HeartbeatRequest(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


def decode_heartbeat_request(frame: memoryview, position: int, version: int) -> HeartbeatRequest:
    reader = Reader(frame, position)
    try:
        if version < FLEXIBLE_FROM:
            group_id, generation, member_id = reader.string(), reader.int32(), reader.string()
            instance_id = reader.nullable_string() if version >= INSTANCE_ID_FROM else None
        else:
            group_id, generation, member_id = reader.compact_string(), reader.int32(), reader.compact_string()
            instance_id = reader.nullable_compact_string()
            reader.skip_tags()
    except MALFORMED as error:
        raise ProtocolError(f"malformed Heartbeat request: {error}") from None
    return HeartbeatRequest(group_id, generation, member_id, instance_id)


def encode_heartbeat_response(correlation_id: int, version: int, error_code: int) -> bytes:
    """Encode a response as a whole frame."""
    if version >= FLEXIBLE_FROM:
        return _FLEXIBLE.pack(_FLEXIBLE.size - _SIZE_PREFIX, correlation_id, NO_THROTTLE_TIME_MS, error_code)
    if version >= THROTTLE_TIME_FROM:
        size = _WITH_THROTTLE_TIME.size - _SIZE_PREFIX
        return _WITH_THROTTLE_TIME.pack(size, correlation_id, NO_THROTTLE_TIME_MS, error_code)
    return _FIRST.pack(_FIRST.size - _SIZE_PREFIX, correlation_id, error_code)
