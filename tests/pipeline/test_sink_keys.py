"""Partitions of many keys, computed at once."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.internal_client.partitioner import partition_for
from penstock.pipeline.sink.key_partitions import partitions_for


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40), max_size=50), st.integers(1, 1000), st.integers(0, 10))
def test_partitions_equal_those_of_single_keys(keys: list[bytes | None], count: int, start: int) -> None:
    found = partitions_for(pa.array(keys, pa.binary())[start:], count)
    for key, partition in zip(keys[start:], found, strict=True):
        assert key is None or partition == partition_for(key, count)
