"""Which partition of an internal topic a group or a transactional id belongs to: the same as with Kafka, so that its
tools look there."""

from __future__ import annotations

from functools import lru_cache
from struct import unpack

_MASK = 0xFFFFFFFF
_REMEMBERED_CHARACTERS = 200
"""Of longer names the hash is not kept, so that what is kept is small whoever sends them."""


def partition_of(name: str, partitions: int) -> int:
    java_hash = _remembered_hash if len(name) <= _REMEMBERED_CHARACTERS else _java_hash
    return java_hash(name) % partitions


@lru_cache(maxsize=32_768)
def _remembered_hash(text: str) -> int:
    """Every heartbeat asks, and hashing a name takes longer than all the rest of it."""
    return _java_hash(text)


def _java_hash(text: str) -> int:
    """Java's String.hashCode, over UTF-16 code units, without its sign."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & _MASK
    return value & 0x7FFFFFFF
