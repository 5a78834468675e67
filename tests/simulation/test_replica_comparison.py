from __future__ import annotations

import pytest

from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import assign
from penstock.records.building import NewRecord, build_batch
from simulation.checks.compacted_replicas import check_compacted
from simulation.models.history import InvariantViolated


def batch(offset: int, key: bytes, value: bytes | None) -> bytes:
    content = bytearray(build_batch([NewRecord(key, value, 1_700_000_000_000)]))
    assign(memoryview(content), Offset(offset), LeaderEpoch(0))
    return bytes(content)


OLD, NEW, OTHER = batch(0, b"k", b"old"), batch(1, b"k", b"new"), batch(2, b"other", b"value")


def test_copies_may_have_been_compacted_at_different_times() -> None:
    check_compacted("orders-0", OLD + NEW + OTHER, NEW + OTHER)
    check_compacted("orders-0", NEW + OTHER, OLD + NEW + OTHER)


def test_copy_without_the_newest_record_of_a_key_is_noticed() -> None:
    with pytest.raises(InvariantViolated, match="I9"):
        check_compacted("orders-0", NEW + OTHER, OTHER)
    with pytest.raises(InvariantViolated, match="I9"):
        check_compacted("orders-0", OLD + OTHER, OLD + NEW + OTHER)


def test_copies_with_different_records_at_one_offset_are_noticed() -> None:
    with pytest.raises(InvariantViolated, match="I9"):
        check_compacted("orders-0", OLD + NEW, OLD + batch(1, b"k", b"another"))


def test_tombstone_may_be_gone_with_the_records_before_it() -> None:
    check_compacted("orders-0", OLD + batch(1, b"k", None) + OTHER, OTHER)
