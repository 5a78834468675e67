"""Encoding of Kafka's primitive types. The values come from Penstock itself, so a value that does not fit is a bug."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

INT8: Final = Struct(">b").pack
INT16: Final = Struct(">h").pack
INT32: Final = Struct(">i").pack
INT64: Final = Struct(">q").pack
UINT16: Final = Struct(">H").pack
FLOAT64: Final = Struct(">d").pack

NO_TAGS: Final = b"\x00"
COMPACT_NULL: Final = b"\x00"
NO_UUID: Final = bytes(16)

_SMALL = tuple(bytes((n,)) for n in range(128))


def unsigned_varint(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def uuid(value: UUID | None) -> bytes:
    return NO_UUID if value is None else value.bytes


def string(value: str) -> bytes:
    encoded = value.encode()
    return INT16(len(encoded)) + encoded


def nullable_string(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else string(value)


def compact_string(value: str) -> bytes:
    encoded = value.encode()
    return unsigned_varint(len(encoded) + 1) + encoded


def nullable_compact_string(value: str | None) -> bytes:
    return COMPACT_NULL if value is None else compact_string(value)


def bytes_(value: bytes) -> bytes:
    return INT32(len(value)) + value


def nullable_bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else bytes_(value)


def compact_bytes(value: bytes) -> bytes:
    return unsigned_varint(len(value) + 1) + value


def nullable_compact_bytes(value: bytes | None) -> bytes:
    return COMPACT_NULL if value is None else compact_bytes(value)


def array_length(count: int) -> bytes:
    """Encode the number of elements of a nullable array; -1 is null."""
    return INT32(count)


def compact_array_length(count: int) -> bytes:
    return unsigned_varint(count + 1)


def tagged(tag: int, field: bytes) -> bytes:
    return unsigned_varint(tag) + unsigned_varint(len(field)) + field


def frame(*parts: bytes | memoryview) -> bytes:
    """Return a whole frame: the parts, preceded by their total size."""
    body = b"".join(parts)
    return INT32(len(body)) + body
