"""Cursor over a received message: reads Kafka's primitive types, each checked against the bytes that are
left.

Malformed bytes raise ProtocolError or, where Python itself makes the check, one of the exceptions in
`MALFORMED`, which decoders turn into ProtocolError. No length or count beyond the rest of the message is
accepted. The number of array elements in a message is limited, because an element can cost far more memory
and time than its bytes.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, error
from typing import Any, Final
from uuid import UUID

from penstock.errors import ProtocolError

MAX_ELEMENTS: Final = 100_000
"""Maximum number of array elements in one request. Reading this many takes about 0.2 s."""
NO_LIMIT: Final = 2**31
"""Limit of array elements for responses, whose size the client has limited by its request."""
MAX_TAGS: Final = 64
"""Maximum number of tagged fields in one structure."""
MALFORMED: Final = (error, IndexError, UnicodeDecodeError, OverflowError)
"""Exceptions, besides ProtocolError, that the methods raise for missing or invalid bytes."""

_INT8 = Struct(">b").unpack_from
_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from
_INT64 = Struct(">q").unpack_from
_UINT16 = Struct(">H").unpack_from
_FLOAT64 = Struct(">d").unpack_from
_MAX_VARINT_SHIFT = 28


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """UUID of these bytes, from a cache, because the same topic ids occur repeatedly and creating a UUID is slow."""
    return UUID(bytes=raw)


class Reader:
    __slots__ = ("data", "elements_left", "position")

    def __init__(self, data: memoryview, position: int = 0, max_elements: int = MAX_ELEMENTS) -> None:
        self.data = data
        self.position = position
        self.elements_left = max_elements

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Read several fields of fixed width in one call."""
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def boolean(self) -> bool:
        self.position += 1
        return self.data[self.position - 1] != 0

    def int8(self) -> int:
        (value,) = _INT8(self.data, self.position)
        self.position += 1
        return value  # type: ignore[no-any-return]

    def int16(self) -> int:
        (value,) = _INT16(self.data, self.position)
        self.position += 2
        return value  # type: ignore[no-any-return]

    def int32(self) -> int:
        (value,) = _INT32(self.data, self.position)
        self.position += 4
        return value  # type: ignore[no-any-return]

    def int64(self) -> int:
        (value,) = _INT64(self.data, self.position)
        self.position += 8
        return value  # type: ignore[no-any-return]

    def uint16(self) -> int:
        (value,) = _UINT16(self.data, self.position)
        self.position += 2
        return value  # type: ignore[no-any-return]

    def float64(self) -> float:
        (value,) = _FLOAT64(self.data, self.position)
        self.position += 8
        return value  # type: ignore[no-any-return]

    def uuid(self) -> UUID:
        return uuid_of(bytes(self._take(16)))

    def unsigned_varint(self) -> int:
        position = self.position
        byte = self.data[position]
        if byte < 128:
            self.position = position + 1
            return byte
        second = self.data[position + 1]
        if second < 128:
            self.position = position + 2
            return byte & 0x7F | second << 7
        return self._long_varint()

    def string(self) -> str:
        start = self.position + 2
        (length,) = _INT16(self.data, start - 2)
        end = start + length
        if length >= 0 and end <= len(self.data):  # The usual case, without a call.
            self.position = end
            return str(self.data[start:end], "utf-8")
        self.position = start
        return str(self._take(length), "utf-8")

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else str(self._take(length), "utf-8")

    def compact_string(self) -> str:
        start = self.position + 1
        end = start + self.data[start - 1] - 1
        if start <= end <= len(self.data) and end - start < 127:  # The usual case, in one step.
            self.position = end
            return str(self.data[start:end], "utf-8")
        return str(self._take(self.unsigned_varint() - 1), "utf-8")

    def nullable_compact_string(self) -> str | None:
        if self.data[self.position] == 0:
            self.position += 1
            return None
        length = self.unsigned_varint() - 1
        return None if length == -1 else str(self._take(length), "utf-8")

    def bytes_(self) -> memoryview:
        return self._take(self.int32())

    def nullable_bytes(self) -> memoryview | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def compact_bytes(self) -> memoryview:
        return self._take(self.unsigned_varint() - 1)

    def nullable_compact_bytes(self) -> memoryview | None:
        length = self.unsigned_varint() - 1
        return None if length == -1 else self._take(length)

    def array_length(self, element_bytes: int = 1) -> int:
        """Read the number of elements of an array. Each element has at least `element_bytes`."""
        return self._count(self.int32(), element_bytes)

    def nullable_array_length(self, element_bytes: int = 1) -> int:
        """Read the number of elements of a nullable array; -1 for null."""
        count = self.int32()
        return -1 if count == -1 else self._count(count, element_bytes)

    def compact_array_length(self, element_bytes: int = 1) -> int:
        count = self.data[self.position] - 1
        if count < 127:  # The usual case, without a call.
            self.position += 1
        else:
            count = self.unsigned_varint() - 1
        return self._count(count, element_bytes)

    def nullable_compact_array_length(self, element_bytes: int = 1) -> int:
        count = self.unsigned_varint() - 1
        return -1 if count == -1 else self._count(count, element_bytes)

    def tags(self) -> int:
        """Read the number of tagged fields."""
        count = self.unsigned_varint()
        if count > MAX_TAGS:
            raise ProtocolError(f"the message has {count} tagged fields; at most {MAX_TAGS} are allowed")
        return count

    def tag(self, after: int) -> tuple[int, int]:
        """Read the next tag and the end position of its field. Tags must increase (KIP-482), so none occurs twice."""
        tag = self.unsigned_varint()
        if tag <= after:
            raise ProtocolError("tagged fields out of order")
        size = self.unsigned_varint()
        end = self.position + size
        if end > len(self.data):
            raise ProtocolError("a tagged field is longer than the rest of its message")
        return tag, end

    def close_tag(self, end: int) -> None:
        """Check that the field of a known tag ends where its length says."""
        if self.position != end:
            raise ProtocolError("the length of a tagged field does not match its content")

    def skip_tags(self) -> None:
        """Skip tagged fields that are unknown here."""
        if self.data[self.position] == 0:  # No tagged fields, as nearly always.
            self.position += 1
            return
        last = -1
        for _ in range(self.tags()):
            last, self.position = self.tag(last)

    def _long_varint(self) -> int:
        value = shift = 0
        byte = 128
        while byte > 127:
            if shift > _MAX_VARINT_SHIFT:
                raise ProtocolError("a varint has more than 5 bytes")
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        if value > 0xFFFFFFFF:
            raise ProtocolError("a varint has more than 32 bits")
        return value

    def _take(self, length: int) -> memoryview:
        start = self.position
        self.position = end = start + length
        if length < 0 or end > len(self.data):
            raise ProtocolError(
                f"the length of a field is {length}, but {len(self.data) - start} bytes are left"
            )
        return self.data[start:end]

    def _count(self, count: int, element_bytes: int) -> int:
        if count < 0 or count * element_bytes > len(self.data) - self.position:
            raise ProtocolError(
                f"an array has {count} elements, but {len(self.data) - self.position} bytes are left"
            )
        self.elements_left -= count
        if self.elements_left < 0:
            raise ProtocolError("the message has too many array elements")
        return count
