from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, InvalidBatch
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import (
    HEADER_SIZE,
    TimestampType,
    assign,
    crc_matches,
    read_header,
    stamp_append_time,
)
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.iteration import iterate


def batch(**options: Any) -> memoryview:
    records = [NewRecord(b"k", b"v", 1_000 + i) for i in range(3)]
    return memoryview(build_batch(records, **options))


def test_header_fields_are_read_from_their_places() -> None:
    raw = struct.pack(">qiibIhiqqqhii", 70, 49, 5, 2, 0xDEADBEEF, 0x3C, 9, 1_000, 2_000, 77, 3, 2**31 - 5, 10)
    header = read_header(b"xyz" + raw, 3)
    assert (header.base_offset, header.last_offset, header.next_offset) == (70, 79, 80)
    assert (header.size, header.leader_epoch, header.magic, header.crc) == (HEADER_SIZE, 5, 2, 0xDEADBEEF)
    assert (header.codec, header.is_transactional, header.is_control) == (Codec.ZSTD, True, True)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 2_000)
    assert (header.has_producer, header.producer_id, header.producer_epoch) == (True, 77, 3)
    assert header.record_count == 10


def test_sequence_wraps_to_zero_after_the_largest_int() -> None:
    header = read_header(batch(producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_header_cut_short_is_refused() -> None:
    with pytest.raises(InvalidBatch) as caught:
        read_header(batch()[: HEADER_SIZE - 1])
    assert caught.value.code is ErrorCode.corrupt_message


@given(st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_assigning_offsets_changes_no_other_byte_and_keeps_the_crc(offset: int, epoch: int) -> None:
    before = batch()
    after = memoryview(bytearray(before))
    assign(after, Offset(offset), LeaderEpoch(epoch))
    header = read_header(after)
    assert (header.base_offset, header.leader_epoch) == (offset, epoch)
    assert (after[8:12], after[16:]) == (before[8:12], before[16:])
    assert crc_matches(after, header)


def test_every_record_has_the_append_time_of_its_batch() -> None:
    buffer = batch()
    stamp_append_time(buffer, 99_000)
    header = read_header(buffer)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert crc_matches(buffer, header)
    assert {record.timestamp for record in iterate(buffer, header)} == {99_000}


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 10_000, 2**31 - 1])
def test_a_lying_length_is_never_a_matching_crc(length: int) -> None:
    buffer = batch()
    assert crc_matches(buffer, read_header(buffer))
    struct.pack_into(">i", buffer, 8, length)
    assert not crc_matches(buffer, read_header(buffer))


def test_crc_looks_at_its_own_batch_only() -> None:
    buffer = memoryview(bytearray(batch()) + b"the next batch")
    assert crc_matches(buffer, read_header(buffer))
