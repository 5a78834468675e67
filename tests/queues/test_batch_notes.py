"""Excerpts of large batches: a consumer that takes a few records of a batch does not get all of its bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.queues.batch_notes import BatchNotes, Note, RecordBodies, find_places
from penstock.queues.states import Acquired
from penstock.records.batch import HEADER_SIZE, BatchHeader, crc_matches, read_header
from penstock.records.building import NewRecord, build_batch, rebuild_batch
from penstock.records.compression import Codec, decompress
from penstock.records.iteration import iterate
from penstock.records.log_slice import LogSlice
from penstock.storage.disk import RealDisk

BASE, COUNT = 1_000, 100


def make_batch(codec: Codec = Codec.NONE) -> bytearray:
    records = [NewRecord(b"k%d" % number, bytes(600), 5) for number in range(COUNT)]
    return build_batch(records, codec=codec, base_offset=BASE)


def stored(batch: bytes, path: Path) -> LogSlice:
    path.write_bytes(b"before" + batch)
    return LogSlice(RealDisk(str(path.parent)).open(path.name), 6, len(batch))


def noted(batch: bytes) -> BatchNotes:
    notes, header = BatchNotes(), read_header(batch)
    notes.add(Note(header, (), find_places(header, memoryview(batch)[HEADER_SIZE:])))
    return notes


def offsets(part: memoryview) -> list[int]:
    header = read_header(part)
    assert crc_matches(part, header)
    return [record.offset for record in iterate(part, header)]


def test_excerpt_has_the_acquired_records_and_the_offsets_of_its_batch(tmp_path: Path) -> None:
    batch = bytes(make_batch())
    part = stored(batch, tmp_path / "log")
    acquired = [Acquired(BASE + 7, BASE + 8, 1), Acquired(BASE + 50, BASE + 50, 2)]
    [excerpt] = noted(batch).excerpts([part], acquired)
    assert isinstance(excerpt, memoryview)
    assert len(excerpt) < len(batch) // 20
    assert offsets(excerpt) == [BASE + 7, BASE + 8, BASE + 50]
    whole, header = read_header(batch), read_header(excerpt)
    assert (header.base_offset, header.last_offset) == (whole.base_offset, whole.last_offset)
    assert header.record_count == 3


@pytest.mark.parametrize("first", [BASE - 500, BASE + COUNT])
def test_excerpt_leaves_out_records_of_other_batches(first: int, tmp_path: Path) -> None:
    batch = bytes(make_batch())
    acquired = [Acquired(first, first + 10, 1), Acquired(BASE, BASE, 1)]
    [excerpt] = noted(batch).excerpts([stored(batch, tmp_path / "log")], acquired)
    assert isinstance(excerpt, memoryview)
    assert offsets(excerpt) == [BASE]


def test_batch_is_sent_as_it_is_if_most_of_its_records_are_wanted(tmp_path: Path) -> None:
    batch = bytes(make_batch())
    part = stored(batch, tmp_path / "log")
    assert noted(batch).excerpts([part], [Acquired(BASE, BASE + 40, 1)]) == [part]


def test_batch_with_another_header_than_the_noted_one_is_sent_as_it_is(tmp_path: Path) -> None:
    batch = bytes(make_batch())
    header = read_header(batch)
    compacted = bytes(rebuild_batch(header, list(iterate(memoryview(batch), header))[::2]))
    part = stored(compacted + bytes(len(batch)), tmp_path / "log")
    part = LogSlice(part.file, part.position, len(compacted))
    assert noted(batch).excerpts([part], [Acquired(BASE + 2, BASE + 2, 1)]) == [part]


def test_records_of_a_compacted_batch_are_found_by_their_offsets(tmp_path: Path) -> None:
    batch = bytes(make_batch())
    header = read_header(batch)
    compacted = bytes(rebuild_batch(header, list(iterate(memoryview(batch), header))[::2]))
    part = stored(compacted, tmp_path / "log")
    [excerpt] = noted(compacted).excerpts([part], [Acquired(BASE + 41, BASE + 44, 1)])
    assert isinstance(excerpt, memoryview)
    assert offsets(excerpt) == [BASE + 42, BASE + 44]


def test_record_positions_of_an_unreadable_batch_are_unknown() -> None:
    batch = bytes(make_batch())
    header = read_header(batch)
    body = memoryview(batch)[HEADER_SIZE:]
    assert find_places(header, body) is not None
    wrong: list[BatchHeader] = [
        header._replace(record_count=count) for count in (COUNT - 1, COUNT + 1, 2**31 - 1)
    ]
    assert [find_places(each, body) for each in wrong] == [None] * 3
    compressed = bytes(make_batch(Codec.GZIP))
    assert find_places(read_header(compressed), memoryview(compressed)[HEADER_SIZE:]) is None


def test_excerpt_of_a_compressed_batch_is_made_of_its_kept_records() -> None:
    batch = bytes(make_batch(Codec.ZSTD))
    header = read_header(batch)
    body = bytes(decompress(header.codec, memoryview(batch)[HEADER_SIZE:], 1 << 20))
    bodies = RecordBodies(max_bytes=len(body))
    notes = BatchNotes(bodies)
    notes.add(Note(header, (), find_places(header, body)), body)
    part, acquired = memoryview(batch), [Acquired(BASE + 3, BASE + 4, 1)]
    [excerpt] = notes.excerpts([part], acquired)
    assert isinstance(excerpt, memoryview)
    assert offsets(excerpt) == [BASE + 3, BASE + 4]
    assert read_header(excerpt).codec == Codec.NONE
    bodies.add(object(), 7, b"another batch")
    assert bodies.size_bytes == len(b"another batch")
    assert notes.excerpts([part], acquired) == [part], "without its records the batch is sent as it is"
