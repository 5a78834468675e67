"""Appends to and reads from one log."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_helpers import (
    EPOCH,
    NOW_MS,
    append,
    append_batch,
    flush,
    header_of,
    make_batch,
    make_context,
    make_log,
    read_all,
)

from penstock.config.topic_values import MessageTimestampType
from penstock.errors import BrokerError, ErrorCode
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import TimestampType, read_header
from penstock.records.iteration import read_batches
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return make_log(make_context(tmp_path))


@pytest.fixture
def small(tmp_path: Path) -> Log:
    return make_log(make_context(tmp_path), SMALL)


def read(
    log: Log, offset: int, max_bytes: int = 1 << 20, *, below: int | None = None, one: bool = True
) -> list[int]:
    """The base offsets of the batches that a read returns whole."""
    end = log.log_end_offset if below is None else Offset(below)
    content = log.read(Offset(offset), max_bytes, below=end, at_least_one=one).read()
    return [header.base_offset for header, _ in read_batches(memoryview(content))]


def test_read_of_an_empty_log_returns_no_batch(log: Log) -> None:
    assert log.read(Offset(0), 100, below=Offset(0), at_least_one=True).length == 0
    assert log.segments == ()


def test_appends_get_consecutive_offsets_and_are_read_unchanged(log: Log) -> None:
    first = append(log, b"a", b"b")
    second = append(log, b"c")
    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    assert log.log_end_offset == 3
    assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_leader_epoch_of_the_client_is_overwritten(log: Log) -> None:
    append(log, b"a", epoch=LeaderEpoch(9))
    content = log.read(Offset(0), 1000, below=Offset(1), at_least_one=True).read()
    assert read_header(content).leader_epoch == 9
    assert log.leader_epochs.latest == 9


def test_a_read_inside_a_batch_starts_at_the_batch(log: Log) -> None:
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    assert read(log, 1) == [0, 3]


def test_read_returns_no_batch_at_or_above_its_bound(log: Log) -> None:
    for value in (b"a", b"b", b"c"):
        append(log, value)
    assert read(log, 0, below=2) == [0, 1]
    assert read(log, 2, below=2) == []


def test_bound_inside_a_batch_excludes_the_batch(log: Log) -> None:
    append(log, b"a")
    append(log, b"b", b"c")
    assert read(log, 0, below=2) == [0]


def test_reads_respect_any_bound_in_any_order(small: Log) -> None:
    for number in range(60):
        append(small, b"%d" % number)
    for below in (60, 3, 59, 31, 30, 1, 32, 0, 60):
        for offset in range(0, below, 7):
            found = read(small, offset, below=below)
            assert found, (offset, below)
            assert found[0] == offset
            assert found[-1] < below


def test_a_read_cuts_the_last_batch_by_size(log: Log) -> None:
    size = len(make_batch([b"a"]))
    for value in (b"a", b"b", b"c"):
        append(log, value)
    assert log.read(Offset(0), size * 2 + 10, below=Offset(3), at_least_one=True).length == size * 2 + 10
    assert read(log, 0, size * 2 + 10) == [0, 1]


def test_read_with_at_least_one_returns_a_first_batch_above_the_size(log: Log) -> None:
    append(log, b"x" * 1000)
    append(log, b"y")
    assert read(log, 0, 10) == [0]
    assert read(log, 0, 0) == [0]


def test_read_is_empty_if_the_first_batch_does_not_fit(log: Log) -> None:
    append(log, b"x" * 1000)
    assert log.read(Offset(0), 10, below=Offset(1), at_least_one=False).length == 0
    assert log.read(Offset(0), 0, below=Offset(1), at_least_one=False).length == 0


@pytest.mark.parametrize("offset", [-1, 2, 2**62])
def test_reads_outside_the_log_get_offset_out_of_range(log: Log, offset: int) -> None:
    append(log, b"a")
    with pytest.raises(BrokerError) as refused:
        log.read(Offset(offset), 100, below=Offset(1), at_least_one=True)
    assert refused.value.code is ErrorCode.offset_out_of_range


def test_segments_roll_by_size_and_reads_continue_across_them(small: Log) -> None:
    values = [b"%03d" % number for number in range(50)]
    for value in values:
        append(small, value)
    assert len(small.segments) > 5
    assert all(segment.size <= SMALL.segment_bytes for segment in small.segments)
    assert [value for _, value in read_all(small)] == values
    for start in range(50):
        assert read_all(small, start) == list(enumerate(values))[start:]


def test_a_batch_larger_than_a_segment_gets_one_to_itself(small: Log) -> None:
    append(small, b"a")
    append(small, b"x" * 2000)
    append(small, b"b")
    assert [segment.base_offset for segment in small.segments] == [0, 1, 2]


def test_segments_roll_by_the_age_of_their_first_batch(tmp_path: Path) -> None:
    log = make_log(make_context(tmp_path), LogConfig(segment_ms=1000))
    append(log, b"a", now_ms=NOW_MS)
    append(log, b"b", now_ms=NOW_MS + 999)
    append(log, b"c", now_ms=NOW_MS + 1000)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segments_roll_before_a_relative_offset_overflows(log: Log) -> None:
    append(log, b"a")
    log.log_end_offset = Offset(2**31 - 1)
    append(log, b"b")
    append(log, b"c")
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]


def test_log_append_time_replaces_the_producers_time(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_type=MessageTimestampType.LOG_APPEND_TIME)
    log = make_log(make_context(tmp_path), config)
    info = append(log, b"a", b"b", timestamp=5, now_ms=NOW_MS)
    assert info.log_append_time_ms == NOW_MS
    content = log.read(Offset(0), 1000, below=Offset(2), at_least_one=True).read()
    header = read_header(content)
    assert (header.max_timestamp, header.timestamp_type) == (NOW_MS, TimestampType.LOG_APPEND_TIME)
    assert read_all(log) == [(0, b"a"), (1, b"b")]


def test_create_time_returns_no_append_time(log: Log) -> None:
    assert append(log, b"a").log_append_time_ms == -1


def test_batch_with_a_timestamp_far_ahead_is_refused_and_not_stored(log: Log) -> None:
    hour = 3_600_000
    append(log, b"a", timestamp=NOW_MS + hour)
    with pytest.raises(BrokerError) as refused:
        append(log, b"b", timestamp=NOW_MS + hour + 1)
    assert refused.value.code is ErrorCode.invalid_timestamp
    assert log.log_end_offset == 1


def test_old_timestamp_is_refused_only_if_a_bound_is_configured(tmp_path: Path, log: Log) -> None:
    append(log, b"a", timestamp=0)
    log.config = LogConfig(message_timestamp_before_max_ms=1000)
    append(log, b"b", timestamp=NOW_MS - 1000)
    append(log, b"c", timestamp=-1)
    with pytest.raises(BrokerError) as refused:
        append(log, b"d", timestamp=NOW_MS - 1001)
    assert refused.value.code is ErrorCode.invalid_timestamp


def test_changed_log_config_applies_from_the_next_append(log: Log) -> None:
    append(log, b"a")
    log.config = LogConfig(segment_bytes=1)
    append(log, b"b")
    assert len(log.segments) == 2


def test_appends_are_refused_while_the_disk_is_full_and_reads_continue(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    log = make_log(context)
    append(log, b"a")
    context.full = True
    with pytest.raises(BrokerError, match="disk full") as refused:
        append(log, b"b")
    assert refused.value.code is ErrorCode.kafka_storage_error
    assert read_all(log) == [(0, b"a")]
    context.full = False
    append(log, b"b")
    assert read_all(log) == [(0, b"a"), (1, b"b")]


def test_flushed_offset_advances_only_with_a_flush(small: Log) -> None:
    for number in range(20):
        append(small, b"%d" % number)
    assert small.flushed_offset == 0
    job = small.jobs.begin_flush()
    append(small, b"later")
    assert len(job.files) == len(small.segments)
    job.work()
    assert small.flushed_offset == 0
    small.jobs.finish_flush(job)
    assert small.flushed_offset == 20
    assert small.unsynced_bytes == len(make_batch([b"later"]))
    flush(small)
    assert (small.flushed_offset, small.unsynced_bytes) == (21, 0)


def test_flush_unpins_the_files_of_the_log(small: Log, tmp_path: Path) -> None:
    context = make_context(tmp_path / "other")
    log = make_log(context, SMALL)
    for number in range(20):
        append(log, b"%d" % number)
    assert context.files.pinned == len(log.segments)
    flush(log)
    assert context.files.pinned == 0
    append(log, b"again")
    assert context.files.pinned == 1


def test_slice_is_readable_after_its_segment_was_deleted(small: Log) -> None:
    for number in range(30):
        append(small, b"%d" % number)
    slice_ = small.read(Offset(0), 200, below=Offset(30), at_least_one=True)
    before = slice_.read()
    small.advance_log_start(Offset(25))
    job = small.jobs.begin_delete()
    assert job is not None
    job.work()
    small.jobs.finish_delete(job)
    assert slice_.read() == before


def test_batch_buffer_equals_the_stored_bytes(log: Log) -> None:
    batch = make_batch([b"a"])
    append(log, b"first")
    append_batch(log, batch)
    assert header_of(batch).base_offset == 1
    assert header_of(batch).leader_epoch == EPOCH
