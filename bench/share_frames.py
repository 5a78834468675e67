"""Frames of a member of a share group, packed by hand: ShareGroupHeartbeat 1 and ShareFetch 2 (KIP-932).

The module does not use `penstock.wire`, so that both do not share a mistake.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from bench.frames import CLIENT_ID

HEARTBEAT, SHARE_FETCH = 76, 78
HEARTBEAT_VERSION, SHARE_FETCH_VERSION = 1, 2
RECORD_LIMIT = 1
ACCEPT = 1
MAX_BYTES = 1 << 20

Acquired = tuple[int, int, int]
"""Partition, first offset and last offset."""


class ShareAnswer(NamedTuple):
    error_code: int
    acquired: list[Acquired]
    acknowledge_errors: list[int]


def heartbeat_request(correlation_id: int, group: str, member: str, topic: str) -> bytes:
    """A member joins and subscribes to a topic."""
    body = _string(group) + _string(member) + struct.pack(">i", 0) + b"\x00"
    return _frame(HEARTBEAT, HEARTBEAT_VERSION, correlation_id, body + _count(1) + _string(topic) + b"\x00")


def share_fetch_request(
    correlation_id: int,
    group: str,
    member: str,
    epoch: int,
    topic_id: UUID,
    partitions: dict[int, list[tuple[int, int]]],
    max_records: int,
    max_wait_ms: int,
) -> bytes:
    """Fetch records; the ranges of each partition are accepted."""
    limits = struct.pack(
        ">iiiiiibb", epoch, max_wait_ms, 1, MAX_BYTES, max_records, max_records, RECORD_LIMIT, 0
    )
    body = _string(group) + _string(member) + limits
    if partitions:
        body += _count(1) + topic_id.bytes + _count(len(partitions))
        for index, ranges in partitions.items():
            body += struct.pack(">i", index) + _count(len(ranges))
            for first, last in ranges:
                body += struct.pack(">qq", first, last) + _count(1) + bytes((ACCEPT, 0))
            body += b"\x00"
        body += b"\x00"
    else:
        body += _count(0)
    return _frame(SHARE_FETCH, SHARE_FETCH_VERSION, correlation_id, body + _count(0) + b"\x00")


def read_heartbeat(body: bytes) -> int:
    """The error code of a heartbeat."""
    return int(struct.unpack_from(">h", body, 9)[0])


def read_share_fetch(body: bytes) -> ShareAnswer:
    """Read a response up to the acquired records; `body` starts at the correlation id."""
    (error_code,) = struct.unpack_from(">h", body, 9)
    at = _skip(body, 11) + 4
    topics, at = _uvarint(body, at)
    acquired: list[Acquired] = []
    errors: list[int] = []
    for _ in range(topics - 1):
        partitions, at = _uvarint(body, at + 16)
        for _ in range(partitions - 1):
            at = _read_partition(body, at, acquired, errors)
        at += 1
    return ShareAnswer(error_code, acquired, errors)


def _read_partition(body: bytes, at: int, acquired: list[Acquired], errors: list[int]) -> int:
    index, error = struct.unpack_from(">ih", body, at)
    at = _skip(body, at + 6)
    (acknowledge_error,) = struct.unpack_from(">h", body, at)
    errors += [code for code in (error, acknowledge_error) if code]
    at = _skip(body, at + 2) + 9
    at = _skip(body, at)
    ranges, at = _uvarint(body, at)
    for _ in range(ranges - 1):
        first, last = struct.unpack_from(">qq", body, at)
        acquired.append((index, first, last))
        at += 19
    return at + 1


def _frame(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID + b"\x00"
    return struct.pack(">i", len(header) + len(body)) + header + body


def _string(text: str) -> bytes:
    return _count(len(text)) + text.encode()


def _count(number: int) -> bytes:
    """Length of a compact string or array."""
    number += 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def _uvarint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _skip(body: bytes, at: int) -> int:
    """Position behind a nullable compact string or compact bytes."""
    length, at = _uvarint(body, at)
    return at + max(0, length - 1)
