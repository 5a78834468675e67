from __future__ import annotations

import pytest

from penstock.state_log.partitioning import partition_of


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [
        ("", 0),
        ("hello", 99162322),
        ("Aa", 2112),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 1772899),
    ],
)
def test_group_belongs_to_the_partition_kafka_would_choose(group_id: str, java_hash: int) -> None:
    assert partition_of(group_id, 50) == (java_hash & 0x7FFFFFFF) % 50
    assert partition_of(group_id, 7) == (java_hash & 0x7FFFFFFF) % 7
