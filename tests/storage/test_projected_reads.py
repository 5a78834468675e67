"""Projected reads: exactly the matching records, at their offsets, in order, and a reader always reaches the end."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_helpers import EPOCH, NOW_MS, header_of, make_context, make_log

from penstock.errors import CorruptLog
from penstock.filters.matching import Filter
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import crc_matches, read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.control import build_marker, read_marker
from penstock.records.iteration import Record, iterate, read_batches
from penstock.storage.derived.index import EntryFileJob
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_truncation import truncate_log
from penstock.storage.log_view import LogView
from penstock.storage.projection import reading
from penstock.storage.projection.match_index import MatchIndex
from penstock.storage.projection.reading import ProjectedQuery, ProjectedRecords, read_projected
from penstock.storage.projection.rebuilt_batches import RebuiltBatches

FILTER = 'headers.region == "eu"'


def records(flags: list[bool]) -> list[NewRecord]:
    return [NewRecord(b"k", b"value", NOW_MS, (("region", b"eu" if flag else b"us"),)) for flag in flags]


def append(log: Log, flags: list[bool], codec: Codec = Codec.NONE, epoch: LeaderEpoch = EPOCH) -> None:
    batch = memoryview(build_batch(records(flags), codec=codec))
    log.append(batch, header_of(batch), epoch, NOW_MS)
    log.high_watermark = log.log_end_offset


def open_log(path: Path, segment_bytes: int = 1 << 20) -> Log:
    return make_log(make_context(path), LogConfig(segment_bytes=segment_bytes))


class Reader:
    """Reader of a projected log, as a fetch drives it."""

    def __init__(self, log: Log, text: str = FILTER) -> None:
        self.log = log
        self.index = MatchIndex(log.files, Filter(text, 0))

    def read(self, offset: int, max_bytes: int = 1 << 20, *, scans_all: bool = True) -> ProjectedRecords:
        query = ProjectedQuery(Offset(offset), max_bytes, self.log.high_watermark, at_least_one=True)
        epochs = LeaderEpochs(self.log.leader_epochs.entries)
        return read_projected(self.index, LogView.of(self.log), epochs, query, lambda: not scans_all)

    def file_all(self) -> int:
        """Write the files of all segments that were scanned, as a broker does; return their number."""
        count = 0
        while (found := self.index.unfiled(self.log.segments)) is not None:
            files, segment = self.log.files, found[0]
            job = EntryFileJob(files.disk, files, self.index.kind, *found, 1 << 20, lambda: True)
            assert job.write()
            assert self.log.jobs.begin_filing(segment)
            self.index.filed(segment, job.place())
            self.log.jobs.finish_filing(segment)
            count += 1
        return count

    def all(self, offset: int = 0, max_bytes: int = 1 << 20, *, scans_all: bool = True) -> list[Record]:
        """Everything from an offset to the end, read as a consumer reads it."""
        found: list[Record] = []
        while offset < self.log.high_watermark:
            response = self.read(offset, max_bytes, scans_all=scans_all)
            first, position = True, offset
            for header, batch in read_batches(memoryview(response.records)):
                assert header.base_offset == position or (first and header.base_offset < position)
                assert header.last_offset < self.log.high_watermark
                assert header.leader_epoch == self.log.leader_epochs.epoch_at(header.last_offset)
                assert crc_matches(batch, header)
                if not header.is_control:
                    found += [each for each in iterate(batch, header) if each.offset >= offset]
                first, position = False, header.next_offset
            assert position > offset, "a response moves the reader"
            offset = position
        assert offset == self.log.high_watermark
        return found


def expected(log: Log, offset: int = 0) -> list[int]:
    found: list[int] = []
    start = log.log_start_offset
    while start < log.high_watermark:
        content = log.read(Offset(start), 1 << 30, below=log.high_watermark, at_least_one=True, wait=True)
        for header, batch in read_batches(memoryview(content.read())):
            start = header.next_offset
            if not header.is_control:
                found += [
                    each.offset
                    for each in iterate(batch, header)
                    if dict(each.headers).get("region") == b"eu"
                ]
    return [each for each in found if each >= offset]


batches = st.lists(
    st.tuples(st.lists(st.booleans(), min_size=1, max_size=9), st.sampled_from(Codec)),
    min_size=1,
    max_size=12,
)


@given(batches, st.integers(0, 60), st.sampled_from([1, 90, 200, 1 << 20]), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reader_of_a_view_gets_exactly_the_matching_records(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[list[bool], Codec]],
    offset: int,
    max_bytes: int,
    scans_all: bool,
) -> None:
    log = open_log(tmp_path_factory.mktemp("log"), 1_024)
    reader = Reader(log)
    for number, (flags, codec) in enumerate(drawn):
        append(log, flags, codec, LeaderEpoch(EPOCH + number // 4))
        if number % 3 == 0:
            reader.read(log.high_watermark - 1)  # a reader at the end leaves runs with gaps before them
    for start in (min(offset, log.log_end_offset), 0):
        found = reader.all(start, max_bytes, scans_all=scans_all)
        assert [each.offset for each in found] == expected(log, start)
    assert reader.index.scanned == sum(len(flags) for flags, _ in drawn), "each record is evaluated once"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path)


def test_range_without_matches_is_sent_as_one_control_batch(log: Log) -> None:
    for _ in range(5):
        append(log, [False] * 7)
    [(header, batch)] = read_batches(memoryview(Reader(log).read(0).records))
    assert (header.base_offset, header.last_offset, header.attributes) == (0, 34, 0x20)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    [record] = iterate(batch, header)
    assert (record.offset, record.key) == (34, b"\x00\x00\x7f\xff")
    assert read_marker(batch, header) is None


def test_response_without_matches_is_not_due(log: Log) -> None:
    append(log, [False] * 7)
    assert not Reader(log).read(0).is_due
    append(log, [True])
    assert Reader(log).read(0).is_due


def test_a_batch_that_matches_as_a_whole_is_sent_as_it_is_stored(log: Log) -> None:
    append(log, [True] * 3, Codec.LZ4)
    stored = log.read(Offset(0), 1 << 20, below=log.high_watermark, at_least_one=True, wait=True).read()
    assert Reader(log).read(0).records == stored


def test_a_batch_keeps_its_codec_and_ends_with_its_last_match(log: Log) -> None:
    append(log, [False, True, False, True, False, False], Codec.ZSTD)
    [(kept, batch), (rest, _)] = read_batches(memoryview(Reader(log).read(0).records))
    assert (kept.base_offset, kept.last_offset, kept.codec, kept.record_count) == (0, 3, Codec.ZSTD, 2)
    assert [record.offset for record in iterate(batch, kept)] == [1, 3]
    assert (rest.base_offset, rest.last_offset, rest.is_control) == (4, 5, True)


def test_markers_and_aborted_transactions_are_passed_to_readers_of_a_view(log: Log) -> None:
    for value, commit in ((True, False), (False, True)):
        batch = memoryview(
            build_batch(
                records([value]),
                producer_id=5,
                producer_epoch=0,
                base_sequence=int(commit),
                transactional=True,
            )
        )
        header = read_header(batch)
        log.append(batch, header, EPOCH, NOW_MS)
        marker = memoryview(build_marker(5, 0, commit, 0, NOW_MS))
        log.append(marker, read_header(marker), EPOCH, NOW_MS)
    log.high_watermark = log.log_end_offset
    response = Reader(log).read(0)
    markers = [
        found
        for header, batch in read_batches(memoryview(response.records))
        if header.is_control and (found := read_marker(batch, header)) is not None
    ]
    assert [marker.is_commit for marker in markers] == [False, True]
    assert [(each.producer_id, each.first_offset) for each in response.aborted] == [(5, 0)]


def test_matches_of_truncated_records_are_dropped(log: Log) -> None:
    append(log, [True])
    append(log, [True])
    reader = Reader(log)
    assert len(reader.all()) == 2
    log.high_watermark = Offset(1)
    truncate_log(log, Offset(1), NOW_MS, lambda: None)
    append(log, [False])
    assert [each.offset for each in reader.all()] == [0]


def test_damaged_batch_is_an_error_for_readers_of_a_view(log: Log) -> None:
    append(log, [False])
    append(log, [True])
    segment = log.segments[0]
    segment.file.pwrite(segment.size - 3, (b"xyz",))
    reader = Reader(log)
    [(header, _)] = read_batches(memoryview(reader.read(0).records))
    assert header.last_offset == 0
    with pytest.raises(CorruptLog):
        reader.read(1)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_further_reader_gets_rebuilt_batches_from_memory(tmp_path: Path, codec: Codec) -> None:
    log = open_log(tmp_path)
    for _ in range(5):
        append(log, [False, True, False, True], codec)
    reader = Reader(log)
    first = reader.all()
    with patch.object(reading, "StoredBatch", side_effect=AssertionError("the log was read")):
        assert reader.all() == first
        assert [record.offset for record in reader.all(6)] == expected(log, 6)


def test_rebuilt_batch_is_cached_only_when_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, [True, False, True, True])
    reader = Reader(log)
    reader.all()
    reader.index.rebuilt.clear()
    assert [record.offset for record in reader.all(2)] == [2, 3]
    assert [record.offset for record in reader.all(0)] == [0, 2, 3]


def test_the_memory_of_rebuilt_batches_is_bounded(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(200):
        append(log, [False, True])
    reader = Reader(log)
    reader.index.rebuilt = rebuilt = RebuiltBatches(max_bytes=4_000)
    assert [record.offset for record in reader.all()] == expected(log)
    assert 3_000 < rebuilt.size_bytes <= 4_000
    assert [record.offset for record in reader.all()] == expected(log)
