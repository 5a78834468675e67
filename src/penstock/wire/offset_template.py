"""Template of a request that a client repeats with another offset, so that its bytes are recognised without a
decoder.

A template consists of the whole request body except the eight bytes of one offset. A frame with the same
bytes around an offset is the same request with another offset. The decoder of the request finds the position
of the offset: a position is accepted only if another number there changes the decoded offset to that number,
and nothing else. A frame in any other encoding does not match.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeVar

from penstock.errors import ProtocolError

MAX_TEMPLATE_BYTES: Final = 1024
"""Maximum size of a body that gets a template, in bytes, so that a connection uses little memory."""
_MAX_PLACES: Final = 4
"""Maximum number of positions with the bytes of the offset that are tried."""
_OFFSET_BYTES: Final = 8
_OFFSET = Struct(">q")
_OTHER_OFFSET: Final = 0x0102030405060708

T = TypeVar("T")


class OffsetTemplate:
    __slots__ = ("_after", "_before", "_offset_at", "_size", "_version")

    def __init__(self, version: int, body: bytes, offset_at: int) -> None:
        self._version = version
        self._before = body[:offset_at]
        self._after = body[offset_at + _OFFSET_BYTES :]
        self._offset_at = offset_at
        self._size = len(body)

    def find(self, frame: memoryview, position: int, version: int) -> int | None:
        """Offset of a frame that matches the template; None for another frame. `position` is the end of the
        request header.
        """
        if version != self._version or len(frame) - position != self._size:
            return None
        at = position + self._offset_at
        if frame[position:at] != self._before or frame[at + _OFFSET_BYTES :] != self._after:
            return None
        offset: int = _OFFSET.unpack_from(frame, at)[0]
        return offset


def make_template(
    frame: memoryview,
    position: int,
    version: int,
    offset: int,
    decode: Callable[[memoryview, int, int], T],
    with_offset: Callable[[int], T],
) -> OffsetTemplate | None:
    """Template of a frame whose decoded request has this offset; None if there is none. `with_offset` returns
    the decoded request with another offset.
    """
    body = bytes(frame[position:])
    if len(body) > MAX_TEMPLATE_BYTES:
        return None
    other, changed = _OTHER_OFFSET ^ offset, bytearray(frame)
    encoded, expected, at = _OFFSET.pack(offset), with_offset(other), -1
    for _ in range(_MAX_PLACES):
        at = body.find(encoded, at + 1)
        if at < 0:
            return None
        _OFFSET.pack_into(changed, position + at, other)
        try:
            if decode(memoryview(changed), position, version) == expected:
                return OffsetTemplate(version, body, at)
        except ProtocolError:
            pass
        _OFFSET.pack_into(changed, position + at, offset)
    return None
