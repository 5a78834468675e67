from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidBatch
from penstock.records.batch import crc_matches, read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.control import Marker, build_marker, read_marker
from penstock.records.validation import check_batch


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_read_as_it_was_built(commit: bool) -> None:
    batch = memoryview(build_marker(7, 3, commit, 12, 1_000))
    header = read_header(batch)
    assert crc_matches(batch, header)
    assert header.is_control
    assert header.is_transactional
    assert header.record_count == 1
    assert read_marker(batch, header) == Marker(7, 3, commit, 12)


@pytest.mark.parametrize(
    "record",
    [
        NewRecord(b"\0\0\0\1", b"\0\0\0\0\0\x0c\0", 0),
        NewRecord(b"\0\0\0\1", b"\0\0\0\0\0\x0c", 0, (("h", b"v"),)),
    ],
)
def test_marker_of_another_layout_is_read(record: NewRecord) -> None:
    batch = memoryview(
        build_batch([record], producer_id=7, producer_epoch=3, control=True, transactional=True)
    )
    assert read_marker(batch, read_header(batch)) == Marker(7, 3, True, 12)


@pytest.mark.parametrize("commit", [True, False])
def test_other_clients_read_our_markers(commit: bool) -> None:
    batch = DefaultRecordBatch(bytearray(build_marker(7, 3, commit, 12, 1_000)))
    assert batch.validate_crc()
    assert batch.is_control_batch
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch) == (7, 3)
    (record,) = batch
    assert record.key == bytes((0, 0, 0, commit))
    assert record.value == bytes((0, 0, 0, 0, 0, 12))


@pytest.mark.parametrize(
    "record",
    [
        NewRecord(None, b"\0\0\0\0\0\1", 0),
        NewRecord(b"\0\0\0\2", b"\0\0\0\0\0\1", 0),
        NewRecord(b"\0\0", b"\0\0\0\0\0\1", 0),
        NewRecord(b"\0\0\0\1", b"\0\0", 0),
        NewRecord(b"\0\0\0\1", None, 0),
    ],
)
def test_other_control_batches_are_no_markers(record: NewRecord) -> None:
    batch = memoryview(build_batch([record], producer_id=1, producer_epoch=0, control=True))
    assert read_marker(batch, read_header(batch)) is None


def test_an_emptied_control_batch_is_no_marker() -> None:
    batch = memoryview(build_marker(7, 3, True, 12, 1_000))
    header = read_header(batch)._replace(record_count=0, batch_length=49)
    assert read_marker(batch[:61], header) is None


def test_clients_may_not_write_markers() -> None:
    batch = memoryview(build_marker(7, 3, True, 12, 1_000))
    with pytest.raises(InvalidBatch, match="control"):
        check_batch(batch, max_bytes=1_000)


@given(
    key=st.none() | st.binary(max_size=8),
    value=st.none() | st.binary(max_size=10),
    cut=st.integers(0, 90),
    flips=st.lists(st.tuples(st.integers(61, 80), st.integers(0, 255)), max_size=3),
)
def test_random_bytes_are_decoded_as_a_marker_or_none(
    key: bytes | None, value: bytes | None, cut: int, flips: list[tuple[int, int]]
) -> None:
    content = build_batch([NewRecord(key, value, 0)], producer_id=1, producer_epoch=0, control=True)
    for position, byte in flips:
        content[position % len(content)] = byte
    batch = memoryview(content)
    header = read_header(batch)
    marker = read_marker(batch[: max(61, len(batch) - cut)], header)
    assert marker is None or marker.producer_id == header.producer_id
