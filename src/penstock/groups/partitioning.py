"""Which partition of `__consumer_offsets` a group belongs to: the same as with Kafka, so that its tools look there."""

from __future__ import annotations

from functools import lru_cache
from struct import unpack

_MASK = 0xFFFFFFFF


def partition_of(group_id: str, partitions: int) -> int:
    return _java_hash(group_id) % partitions


@lru_cache(maxsize=4096)
def _java_hash(text: str) -> int:
    """Java's String.hashCode, over UTF-16 code units, without its sign."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & _MASK
    return value & 0x7FFFFFFF
