"""The partitions of keys, equal to those of Kafka's own clients."""

from __future__ import annotations

import pytest

from penstock.internal_client.partitioner import murmur2, partition_for


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_partitioner_matches_the_java_client(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF
    assert partition_for(key, 7) == (hashed & 0x7FFFFFFF) % 7
