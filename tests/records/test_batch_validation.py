from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, InvalidBatch
from penstock.records.batch import read_header, write_crc
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.validation import check_batch, check_records

MAX_BYTES = 1_048_588
FIELDS = {
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}


def batch(count: int = 3, **fields: int) -> memoryview:
    """A valid batch whose named header fields are overwritten, with a matching CRC."""
    buffer = memoryview(build_batch([NewRecord(b"k", b"v" * 20, 1_000 + i) for i in range(count)]))
    for name, value in fields.items():
        position, form = FIELDS[name]
        struct.pack_into(form, buffer, position, value)
    write_crc(buffer)
    return buffer


def refusal(check: Callable[[], object]) -> ErrorCode:
    with pytest.raises(InvalidBatch) as caught:
        check()
    return caught.value.code


def test_a_good_batch_passes_and_its_header_comes_back() -> None:
    buffer = batch(count=5)
    assert check_batch(buffer, max_bytes=len(buffer)) == read_header(buffer)


def test_batch_with_a_forged_leader_epoch_is_accepted() -> None:
    check_batch(batch(leader_epoch=2**31 - 1), max_bytes=MAX_BYTES)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"magic": 0}, ErrorCode.unsupported_for_message_format),
        ({"magic": 1}, ErrorCode.unsupported_for_message_format),
        ({"magic": 3}, ErrorCode.invalid_record),
        ({"magic": -1}, ErrorCode.invalid_record),
        ({"batch_length": 48}, ErrorCode.invalid_record),  # the rest could be a second batch
        ({"batch_length": 100}, ErrorCode.corrupt_message),
        ({"batch_length": 2**31 - 1}, ErrorCode.corrupt_message),
        ({"batch_length": -1}, ErrorCode.invalid_record),
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.invalid_record),
        ({"record_count": -3}, ErrorCode.invalid_record),
        ({"record_count": 4}, ErrorCode.invalid_record),
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, ErrorCode.invalid_record),
        ({"last_offset_delta": 7}, ErrorCode.invalid_record),
        ({"base_offset": -1}, ErrorCode.invalid_record),
        ({"attributes": 0x40}, ErrorCode.invalid_record),
        ({"attributes": -0x8000}, ErrorCode.invalid_record),
        ({"attributes": 0x20}, ErrorCode.invalid_record),
        ({"attributes": 0x10}, ErrorCode.invalid_record),
        ({"attributes": 0x08}, ErrorCode.invalid_timestamp),
        ({"attributes": 5}, ErrorCode.unsupported_compression_type),
        ({"attributes": 6}, ErrorCode.unsupported_compression_type),
        ({"attributes": 7}, ErrorCode.unsupported_compression_type),
        ({"producer_id": 1}, ErrorCode.invalid_record),
        ({"producer_id": 1, "producer_epoch": 0}, ErrorCode.invalid_record),
        ({"producer_id": 1, "base_sequence": 0}, ErrorCode.invalid_record),
        ({"producer_id": -2, "producer_epoch": 0, "base_sequence": 0}, ErrorCode.invalid_record),
    ],
)
def test_a_bad_header_is_refused_with_its_code(fields: dict[str, int], code: ErrorCode) -> None:
    assert refusal(lambda: check_batch(batch(**fields), max_bytes=MAX_BYTES)) is code


def test_transactional_batch_of_a_producer_has_the_right_shape() -> None:
    buffer = batch(attributes=0x10, producer_id=9, producer_epoch=0, base_sequence=0)
    assert check_batch(buffer, max_bytes=MAX_BYTES).is_transactional


def test_a_batch_over_the_limit_is_too_large() -> None:
    buffer = batch()
    code = refusal(lambda: check_batch(buffer, max_bytes=len(buffer) - 1))
    assert code is ErrorCode.message_too_large


def test_a_second_batch_is_refused() -> None:
    buffer = memoryview(bytearray(batch()) * 2)
    assert refusal(lambda: check_batch(buffer, max_bytes=MAX_BYTES)) is ErrorCode.invalid_record


def test_bytes_after_the_batch_are_refused() -> None:
    buffer = memoryview(bytearray(batch()) + b"junk")
    assert refusal(lambda: check_batch(buffer, max_bytes=MAX_BYTES)) is ErrorCode.corrupt_message


@given(st.integers(0, 142))
def test_truncated_batch_is_refused(length: int) -> None:
    code = refusal(lambda: check_batch(batch()[:length], max_bytes=MAX_BYTES))
    assert code is (ErrorCode.corrupt_message if length else ErrorCode.invalid_record)


@given(st.data())
def test_any_changed_byte_is_refused_or_lies_where_the_leader_writes(data: st.DataObject) -> None:
    buffer = batch()
    position = data.draw(st.integers(0, len(buffer) - 1))
    buffer[position] ^= data.draw(st.integers(1, 255))
    overwritten_by_the_leader = position < 8 or 12 <= position < 16
    try:
        check_batch(buffer, max_bytes=MAX_BYTES)
    except InvalidBatch:
        assert not overwritten_by_the_leader or buffer[0] & 0x80  # a negative base offset
    else:
        assert overwritten_by_the_leader


# The records inside


def deep(buffer: memoryview, require_keys: bool = False) -> None:
    header = check_batch(buffer, max_bytes=MAX_BYTES)
    check_records(buffer, header, max_decompressed_bytes=2**26, require_keys=require_keys)


def with_body(body: bytes, count: int = 1) -> memoryview:
    buffer = memoryview(build_batch([NewRecord(None, None, 0)] * count)[:61] + body)
    struct.pack_into(">i", buffer, 8, len(buffer) - 12)
    write_crc(buffer)
    return buffer


@pytest.mark.parametrize("codec", Codec)
def test_valid_records_pass_validation(codec: Codec) -> None:
    records = [NewRecord(b"k", None, i, (("h", None), ("h", b"x"))) for i in range(300)]
    deep(memoryview(build_batch(records, codec=codec)), require_keys=True)


def test_a_record_without_key_is_refused_where_keys_are_required() -> None:
    buffer = memoryview(build_batch([NewRecord(b"k", b"v", 0), NewRecord(None, b"v", 0)]))
    deep(buffer)
    assert refusal(lambda: deep(buffer, require_keys=True)) is ErrorCode.invalid_record


# length 6 zigzag = 12: attributes, timestamp delta, offset delta, key -1, value -1, no headers
GOOD = bytes([12, 0, 0, 0, 1, 1, 0])


@pytest.mark.parametrize(
    "body",
    [
        GOOD + GOOD,  # more records than counted
        GOOD + b"\x00",
        bytes([14, 0, 0, 0, 1, 1, 0]),  # longer than the batch
        bytes([11, 0, 0, 0, 1, 1, 0]),  # negative length
        bytes([10, 0, 0, 0, 1, 1, 0]),  # shorter than its parts
        bytes([12, 0, 0, 2, 1, 1, 0]),  # offset delta 1 comes first
        bytes([12, 0, 0, 0, 3, 1, 0]),  # key length -2
        bytes([12, 0, 0, 0, 1, 3, 0]),  # value length -2
        bytes([12, 0, 0, 0, 60, 1, 0]),  # key beyond the record
        bytes([12, 0, 0, 0, 1, 60, 0]),
        bytes([12, 0, 0, 0, 1, 1, 1]),  # -1 headers
        bytes([12, 0, 0, 0, 1, 1, 2]),  # one header, no bytes for it
        bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]),  # a header with a null key
        bytes([20, 0, 0, 0, 1, 1, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F]),  # 2**31 - 1 headers
        bytes([20, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80]),
        b"\x80" * 100,  # a number that never ends
        b"\xff\xff\xff\xff\x1f" + GOOD,  # 33 bits
    ],
)
def test_a_malformed_record_is_refused(body: bytes) -> None:
    deep(with_body(GOOD))
    assert refusal(lambda: deep(with_body(body))) is ErrorCode.invalid_record


def test_fewer_records_than_counted_are_refused() -> None:
    body = bytes([14, 0, 0, 0, 1, 3 << 1, 0, 0, 0, 0])
    assert refusal(lambda: deep(with_body(GOOD + bytes([16, 0, 0, 2, 1, 4, 9, 9, 0]), count=3)))
    assert refusal(lambda: deep(with_body(body + GOOD, count=2)))


def test_timestamp_beyond_a_long_is_refused() -> None:
    buffer = memoryview(build_batch([NewRecord(None, None, 0), NewRecord(None, None, 1)]))
    struct.pack_into(">q", buffer, 27, 2**63 - 1)
    write_crc(buffer)
    assert refusal(lambda: deep(buffer)) is ErrorCode.invalid_record


def test_records_that_grow_a_hundredfold_are_refused() -> None:
    buffer = memoryview(build_batch([NewRecord(b"k", bytes(2**22), 0)], codec=Codec.ZSTD))
    assert refusal(lambda: deep(buffer)) is ErrorCode.invalid_record


def test_a_batch_of_millions_of_records_is_refused_before_any_is_looked_at() -> None:
    buffer = memoryview(build_batch([NewRecord(b"k", b"v", 0)], codec=Codec.ZSTD))
    struct.pack_into(">i", buffer, FIELDS["record_count"][0], 250_001)
    struct.pack_into(">i", buffer, FIELDS["last_offset_delta"][0], 250_000)
    write_crc(buffer)
    with pytest.raises(InvalidBatch, match="more than 250000 records"):
        deep(buffer)


def test_a_small_batch_may_grow_more() -> None:
    deep(memoryview(build_batch([NewRecord(b"k", bytes(2**19), 0)], codec=Codec.ZSTD)))


def test_a_damaged_stream_under_a_good_crc_is_corrupt() -> None:
    buffer = memoryview(build_batch([NewRecord(b"k", b"v", 0)], codec=Codec.GZIP))
    buffer[62] ^= 0xFF
    write_crc(buffer)
    assert refusal(lambda: deep(buffer)) is ErrorCode.corrupt_message
