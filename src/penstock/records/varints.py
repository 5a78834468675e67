"""Kafka's zigzag varints, which records contain: at most 5 bytes for an int, 10 for a long."""

from __future__ import annotations

from penstock.errors import ErrorCode, InvalidBatch

_SMALL = tuple(bytes((n,)) for n in range(128))
_SMALL_CONTINUED = tuple(bytes((n | 0x80,)) for n in range(128))
_INT_BITS = 32
_LONG_BITS = 64


def encode(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    if value < 128:
        return _SMALL[value]
    if value < 16_384:
        return _SMALL_CONTINUED[value & 0x7F] + _SMALL[value >> 7]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_int(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Decode a number; return it and the position after it. IndexError if the data ends too early."""
    byte = data[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = data[position + 1]
    if second < 128:
        return (byte & 0x7F | second << 7) >> 1 ^ -(byte & 1), position + 2
    return _decode(data, position, _INT_BITS)


def decode_long(data: bytes | memoryview, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _decode(data, position, _LONG_BITS)


def _decode(data: bytes | memoryview, position: int, bits: int) -> tuple[int, int]:
    byte = data[position]
    value = byte & 0x7F
    shift = 7
    while byte > 127:
        if shift >= bits:
            raise InvalidBatch(ErrorCode.invalid_record, "a varint does not end")
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        shift += 7
    if value >> bits:
        raise InvalidBatch(ErrorCode.invalid_record, "a varint is too large")
    return (value >> 1) ^ -(value & 1), position + 1
