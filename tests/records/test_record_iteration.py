from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidBatch
from penstock.records.batch import TimestampType, read_header, write_crc
from penstock.records.building import NewRecord, build_batch, rebuild_batch
from penstock.records.compression import Codec
from penstock.records.iteration import Record, iterate, iterate_between, read_batches
from penstock.records.validation import check_batch, check_records

maybe_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=20), maybe_bytes), max_size=4).map(tuple)
new_records = st.builds(
    NewRecord, key=maybe_bytes, value=maybe_bytes, timestamp=st.integers(-1, 2**62), headers=headers
)


def read(batch: bytearray | memoryview) -> list[Record]:
    buffer = memoryview(batch)
    return list(iterate(buffer, read_header(buffer)))


@given(st.lists(new_records, min_size=1, max_size=20), st.sampled_from(Codec), st.integers(0, 2**62))
def test_built_batch_is_valid_and_round_trips(
    records: list[NewRecord], codec: Codec, base_offset: int
) -> None:
    buffer = memoryview(build_batch(records, codec=codec, base_offset=base_offset))
    header = check_batch(buffer, max_bytes=2**20)
    check_records(buffer, header, max_decompressed_bytes=2**20, require_keys=False)
    assert list(iterate(buffer, header)) == [
        Record(base_offset + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)
    ]
    assert header.max_timestamp == max(r.timestamp for r in records)


@given(
    st.lists(new_records, min_size=1, max_size=20),
    st.sampled_from(Codec),
    st.integers(-2, 25),
    st.integers(-2, 25),
)
def test_records_between_two_offsets_are_those_of_the_whole_batch(
    records: list[NewRecord], codec: Codec, first: int, last: int
) -> None:
    buffer = memoryview(build_batch(records, codec=codec, base_offset=7))
    header = read_header(buffer)
    expected = [each for each in iterate(buffer, header) if 7 + first <= each.offset <= 7 + last]
    assert list(iterate_between(buffer, header, 7 + first, 7 + last, 2**20)) == expected


def test_a_header_name_that_is_not_utf8_is_read_and_rebuilt_as_it_was() -> None:
    buffer = memoryview(build_batch([NewRecord(b"k", b"v", 5, (("a-name", b"x"),))]))
    buffer[bytes(buffer).index(b"a-name")] = 0xFF
    write_crc(buffer)
    header = read_header(buffer)
    [record] = iterate(buffer, header)
    assert record.headers[0][0].encode(errors="surrogateescape") == b"\xff-name"
    assert rebuild_batch(header, [record]) == buffer


def test_header_has_the_values_given_to_the_builder() -> None:
    batch = build_batch(
        [NewRecord(b"k", b"v", 5)],
        codec=Codec.LZ4,
        base_offset=7,
        producer_id=3,
        producer_epoch=2,
        base_sequence=9,
        leader_epoch=4,
        transactional=True,
        control=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch, header.codec) == (7, 4, Codec.LZ4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 2, 9)
    assert header.is_transactional
    assert header.is_control
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("codec", Codec)
def test_a_rebuilt_batch_keeps_its_range_and_the_records_their_offsets(codec: Codec) -> None:
    records = [NewRecord(b"k%d" % i, b"v", 100 - i) for i in range(10)]
    batch = build_batch(
        records, codec=codec, base_offset=50, producer_id=1, producer_epoch=0, base_sequence=8
    )
    kept = read(batch)[3:5]
    rebuilt = rebuild_batch(read_header(batch), kept)
    header = read_header(rebuilt)
    assert read(rebuilt) == kept
    assert (header.base_offset, header.last_offset, header.record_count) == (50, 59, 2)
    assert (header.last_sequence, header.max_timestamp, header.codec) == (17, 97, codec)


def test_a_batch_can_be_left_with_no_records() -> None:
    batch = build_batch([NewRecord(b"k", b"v", 100)] * 3, codec=Codec.GZIP, base_offset=50)
    rebuilt = rebuild_batch(read_header(batch), [])
    assert read(rebuilt) == []
    assert (read_header(rebuilt).last_offset, read_header(rebuilt).max_timestamp) == (52, 100)


@given(st.integers(0, 400))
def test_reading_a_range_stops_before_a_cut_batch(length: int) -> None:
    batches = [bytes(build_batch([NewRecord(None, b"v" * 50, i)], base_offset=i)) for i in range(3)]
    log = b"".join(batches)[:length]
    found = [bytes(buffer) for _, buffer in read_batches(memoryview(log))]
    assert found == batches[: len(log) // len(batches[0])]


def test_range_of_an_invalid_batch_is_refused() -> None:
    with pytest.raises(InvalidBatch):
        list(read_batches(memoryview(bytes(200))))
    batch = build_batch([NewRecord(None, b"v" * 50, 1)])
    batch[8:12] = b"\x00\x00\x00\x00"
    with pytest.raises(InvalidBatch):
        list(read_batches(memoryview(batch)))
