"""Position of a stream as opaque text: the id of every event. A client sends it back to resume or acknowledge.

    for each partition, in order: partition minus the previous one | next offset    (zigzag varints)
    CRC-32 of the topic's id and the above                                          (4 bytes)

in base64url. The checksum of a position of another topic, or of an invented position, does not match.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from uuid import UUID
from zlib import crc32

from penstock.errors import InvalidBatch, PenstockError
from penstock.records import varints

MAX_LENGTH = 16_384
_CRC_BYTES = 4

Positions = Mapping[int, int]
"""Next offset to read, by partition."""


class ForeignPosition(PenstockError):
    """The text is not a valid position in this topic."""


def encode_positions(topic_id: UUID, positions: Positions) -> str:
    parts, last = [], 0
    for partition in sorted(positions):
        parts.append(varints.encode(partition - last))
        parts.append(varints.encode(positions[partition]))
        last = partition
    body = b"".join(parts)
    return urlsafe_b64encode(body + _checksum(topic_id, body)).rstrip(b"=").decode()


def decode_positions(topic_id: UUID, text: str) -> Positions:
    """Decode a position; raises ForeignPosition unless `encode_positions` created the text for this topic."""
    if len(text) > MAX_LENGTH or not text.isascii():
        raise ForeignPosition
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Base64Error, ValueError):
        raise ForeignPosition from None
    body = data[:-_CRC_BYTES]
    if data[-_CRC_BYTES:] != _checksum(topic_id, body):
        raise ForeignPosition
    positions: dict[int, int] = {}
    place = partition = 0
    try:
        while place < len(body):
            step, place = varints.decode_int(body, place)
            offset, place = varints.decode_long(body, place)
            partition += step
            positions[partition] = offset
    except (IndexError, InvalidBatch):
        raise ForeignPosition from None
    return positions


def _checksum(topic_id: UUID, body: bytes) -> bytes:
    return crc32(body, crc32(topic_id.bytes)).to_bytes(_CRC_BYTES, "big")
