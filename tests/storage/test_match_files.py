"""Index files of views: used instead of a scan, and only for the segment and the filter that they were made of."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_helpers import NOW_MS
from test_projected_reads import FILTER, Reader, append, batches, expected, open_log

from penstock.model import Offset
from penstock.records.compression import Codec
from penstock.storage.derived.file import PAGE_BYTES
from penstock.storage.log import Log
from penstock.storage.log_truncation import truncate_log
from penstock.storage.projection import match_run
from penstock.storage.segment import MATCHES_SUFFIX

OTHER = 'headers.region == "us"'


def fill(log: Log, count: int = 60) -> None:
    for number in range(count):
        append(log, [number % 3 == 0, False, number % 7 == 0])


def filed_log(path: Path) -> Log:
    log = open_log(path, 1_024)
    fill(log)
    reader = Reader(log)
    reader.all()
    assert reader.file_all() == len(log.segments) - 1
    return log


def offsets(reader: Reader, start: int = 0) -> list[int]:
    return [record.offset for record in reader.all(start)]


def files(log: Log) -> list[str]:
    return [name for name in log.files.disk.list(log.directory) if name.endswith(MATCHES_SUFFIX)]


def test_a_restarted_broker_scans_only_the_active_segment(tmp_path: Path) -> None:
    log = filed_log(tmp_path)
    reader = Reader(log)
    assert offsets(reader) == expected(log)
    assert reader.index.scanned <= log.log_end_offset - log.segments[-1].base_offset


def test_saved_match_file_replaces_the_entries_in_memory(tmp_path: Path) -> None:
    log = filed_log(tmp_path)
    reader = Reader(log)
    reader.all()
    assert reader.index.size_bytes < 24 * len(expected(log))
    assert reader.index.stored_entries == len(
        [each for each in expected(log) if each < log.segments[-1].base_offset]
    )


@given(batches, st.integers(0, 60), st.sampled_from([1, 90, 1 << 20]), st.integers(1, 5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_readers_get_the_same_matches_with_and_without_match_files(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[list[bool], Codec]],
    offset: int,
    max_bytes: int,
    taken: int,
) -> None:
    log = open_log(tmp_path_factory.mktemp("log"), 512)
    for flags, codec in drawn:
        append(log, flags, codec)
    first = Reader(log)
    first.all()
    first.file_all()
    start = min(offset, log.log_end_offset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match_run, "MAX_ENTRIES", taken)
        for reader in (first, Reader(log)):
            assert [each.offset for each in reader.all(start, max_bytes)] == expected(log, start)


def test_match_file_is_not_used_for_another_filter(tmp_path: Path) -> None:
    log = filed_log(tmp_path)
    found = {record.offset for record in Reader(log, OTHER).all()}
    assert found == set(range(log.log_end_offset)) - set(expected(log))


def test_match_file_of_another_filter_under_the_same_name_is_invalid(tmp_path: Path) -> None:
    log = filed_log(tmp_path)
    mine, other = Reader(log).index.kind.suffix, Reader(log, OTHER).index.kind.suffix
    for segment in log.segments[:-1]:
        log.files.disk.rename(segment.derived_path(mine), segment.derived_path(other))
        segment.derived = frozenset({other})
    found = {record.offset for record in Reader(log, OTHER).all()}
    assert found == set(range(log.log_end_offset)) - set(expected(log))


@pytest.mark.parametrize("position", [0, 8, PAGE_BYTES - 1, PAGE_BYTES + 20])
def test_damaged_match_file_is_rebuilt(tmp_path: Path, position: int) -> None:
    log = filed_log(tmp_path)
    disk, suffix = log.files.disk, Reader(log).index.kind.suffix
    for segment in log.segments[:-1]:
        path = segment.derived_path(suffix)
        content = bytearray(disk.read(path))
        content[position] ^= 0xFF
        disk.replace(path, bytes(content))
    reader = Reader(log)
    assert offsets(reader) == expected(log)
    assert reader.file_all() == len(log.segments) - 1
    again = Reader(log)
    assert offsets(again) == expected(log)
    assert again.index.scanned < log.log_end_offset


def test_removed_match_file_loses_no_match(tmp_path: Path) -> None:
    log = filed_log(tmp_path)
    reader = Reader(log)
    for segment in log.segments[:-1]:
        log.files.disk.remove(segment.derived_path(reader.index.kind.suffix))
    assert offsets(reader) == expected(log)


@pytest.mark.parametrize("cut", [1, 50, 100])
def test_truncation_of_the_log_removes_its_match_files(tmp_path: Path, cut: int) -> None:
    log = filed_log(tmp_path)
    reader = Reader(log)
    reader.all()
    truncate_log(log, Offset(log.log_end_offset - cut), NOW_MS, lambda: None)
    log.high_watermark = log.log_end_offset
    for _ in range(40):
        append(log, [True, True])
    for each in (reader, Reader(log)):
        assert offsets(each) == expected(log)
    assert len(files(log)) < len(log.segments)


def test_match_files_are_removed_with_their_segments(tmp_path: Path) -> None:
    log = filed_log(tmp_path)
    log.advance_log_start(Offset(log.segments[-1].base_offset))
    job = log.jobs.begin_delete()
    assert job is not None
    job.work()
    log.jobs.finish_delete(job)
    assert files(log) == []


def test_partly_scanned_segment_has_no_match_file(tmp_path: Path) -> None:
    log = open_log(tmp_path, 1_024)
    fill(log)
    reader = Reader(log, FILTER)
    reader.all(log.segments[1].base_offset + 4)  # in its second batch
    reader.file_all()
    bases = {int(name.split(".")[0]) for name in files(log)}
    assert not {log.segments[0].base_offset, log.segments[1].base_offset} & bases
    assert len(bases) == len(log.segments) - 3
