"""Throttle time of an encoded response, written over the zero that every handler puts into the field."""

from __future__ import annotations

from functools import cache
from struct import Struct

from penstock.net.response import Parts
from penstock.wire.apis import PRODUCE
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.headers import encode_response_header
from penstock.wire.produce import FLEXIBLE_FROM
from penstock.wire.schema import entity_fields, load_entity

_INT32 = Struct(">i")
_ZERO = bytes(4)
_NO_TAGS = bytes(1)


def write_throttle_time(api_key: int, version: int, parts: Parts, throttle_ms: int) -> None:
    """Write the throttle time into a response; does nothing if the version has no such field."""
    if api_key == PRODUCE:
        _write_at_the_end(version, parts, throttle_ms)
        return
    position = _position(api_key, version)
    first = parts[0]
    if position is None or not isinstance(first, bytes | bytearray | memoryview):
        return
    if bytes(first[position : position + 4]) == _ZERO:
        changed = bytearray(first)
        _INT32.pack_into(changed, position, throttle_ms)
        parts[0] = changed


def _write_at_the_end(version: int, parts: Parts, throttle_ms: int) -> None:
    """Write the throttle time into a Produce response, which has the field at its end. A response with leader hints has
    tagged fields after it and is left unchanged.
    """
    last = parts[-1]
    if version == 0 or not isinstance(last, bytes | bytearray | memoryview):
        return
    ending = _ZERO + _NO_TAGS if version >= FLEXIBLE_FROM else _ZERO
    if bytes(last[-len(ending) :]) == ending:
        changed = bytearray(last)
        _INT32.pack_into(changed, len(changed) - len(ending), throttle_ms)
        parts[-1] = changed


@cache
def _position(api_key: int, version: int) -> int | None:
    """Position in bytes of the throttle time in a response frame; None if it is not the first field of the body."""
    try:
        first = next(iter(entity_fields(load_entity("response", api_key, version))))
    except Exception:  # noqa: BLE001 - a private API
        return None
    if first.name != "throttle_time":
        return None
    return SIZE_PREFIX + len(encode_response_header(api_key, version, 0))
