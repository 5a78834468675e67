"""Partition of an internal topic to which a group id or transactional id belongs. It is the same as in Kafka, so that
Kafka's tools look in the right partition.
"""

from __future__ import annotations

from functools import lru_cache
from struct import unpack

_MASK = 0xFFFFFFFF
_REMEMBERED_CHARACTERS = 200
"""Maximum length of names whose hashes are cached, so that clients cannot fill the memory with long names."""


def partition_of(name: str, partitions: int) -> int:
    java_hash = _remembered_hash if len(name) <= _REMEMBERED_CHARACTERS else _java_hash
    return java_hash(name) % partitions


@lru_cache(maxsize=32_768)
def _remembered_hash(text: str) -> int:
    """Hash of a name, cached because every heartbeat needs it and hashing costs more than the rest of a heartbeat."""
    return _java_hash(text)


def _java_hash(text: str) -> int:
    """Java's String.hashCode over UTF-16 code units, without the sign bit."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & _MASK
    return value & 0x7FFFFFFF
