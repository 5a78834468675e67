from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from log_helpers import NOW_MS, append, make_context, make_log, open_manager, read_all, the_log

from penstock.config import CleanupPolicy
from penstock.model import Offset
from penstock.storage.disk import RealDisk
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import StorageContext
from penstock.storage.retention import retained_from

HOUR_MS = 3_600_000


@pytest.fixture
def context(tmp_path: Path) -> StorageContext:
    return make_context(tmp_path)


def config(**settings: Any) -> LogConfig:
    defaults: dict[str, Any] = {"segment_bytes": 100, "retention_ms": HOUR_MS, "retention_bytes": -1}
    return LogConfig(**(defaults | settings))


def fill(log: Log, count: int, *, start_ms: int = NOW_MS, step_ms: int = 0) -> None:
    """A log with one segment for each record."""
    for number in range(count):
        time_ms = start_ms + number * step_ms
        append(log, b"x" * 40, timestamp=time_ms, now_ms=time_ms)
    assert len(log.segments) == count


def retain(log: Log, now_ms: int, high_watermark: int | None = None) -> None:
    limit = log.log_end_offset if high_watermark is None else Offset(high_watermark)
    log.advance_log_start(retained_from(log, now_ms, limit))
    job = log.jobs.begin_delete()
    if job is not None:
        job.work()
        log.jobs.finish_delete(job)


def offsets(log: Log) -> list[int]:
    return [offset for offset, _ in read_all(log)]


def test_segments_expire_with_their_newest_record(context: StorageContext) -> None:
    log = make_log(context, config())
    fill(log, 5, step_ms=10)
    retain(log, NOW_MS + 20 + HOUR_MS)
    assert offsets(log) == [2, 3, 4], "a record exactly as old as allowed stays"
    assert log.log_start_offset == 2
    assert len(log.segments) == 3


def test_unexpired_segment_keeps_the_segments_behind_it(context: StorageContext) -> None:
    log = make_log(context, config())
    append(log, b"x" * 40, timestamp=NOW_MS + HOUR_MS)
    append(log, b"x" * 40, timestamp=NOW_MS)
    append(log, b"x" * 40, timestamp=NOW_MS)
    retain(log, NOW_MS + HOUR_MS + 1)
    assert offsets(log) == [0, 1, 2]


def test_fully_expired_log_continues_in_a_new_segment(context: StorageContext) -> None:
    log = make_log(context, config())
    fill(log, 3)
    retain(log, NOW_MS + HOUR_MS + 1)
    assert offsets(log) == []
    assert log.log_start_offset == log.log_end_offset == 3
    assert append(log, b"new", now_ms=NOW_MS + HOUR_MS + 2).base_offset == 3


def test_records_above_the_high_watermark_do_not_expire(context: StorageContext) -> None:
    log = make_log(context, config())
    fill(log, 4)
    retain(log, NOW_MS + HOUR_MS + 1, high_watermark=2)
    assert offsets(log) == [2, 3]


def test_retention_of_minus_one_keeps_records_forever(context: StorageContext) -> None:
    log = make_log(context, config(retention_ms=-1))
    fill(log, 3)
    retain(log, NOW_MS + 10**15)
    assert offsets(log) == [0, 1, 2]


def test_oldest_segments_are_deleted_until_the_size_fits(context: StorageContext) -> None:
    log = make_log(context, config())
    fill(log, 5)
    size = log.segments[0].size
    log.config = config(retention_bytes=3 * size + 1)
    retain(log, NOW_MS)
    assert offsets(log) == [1, 2, 3, 4], "never less than was asked to be kept"
    log.config = config(retention_bytes=3 * size)
    retain(log, NOW_MS)
    assert offsets(log) == [2, 3, 4]


def test_active_segment_is_not_deleted_by_size(context: StorageContext) -> None:
    log = make_log(context, config(retention_bytes=0))
    fill(log, 3)
    retain(log, NOW_MS)
    assert offsets(log) == [2]


@pytest.mark.parametrize("policy", [(), (CleanupPolicy.COMPACT,)])
def test_log_without_delete_policy_is_not_deleted(
    context: StorageContext, policy: tuple[CleanupPolicy, ...]
) -> None:
    log = make_log(context, config(cleanup_policy=policy))
    fill(log, 3)
    retain(log, NOW_MS + HOUR_MS + 1)
    assert offsets(log) == [0, 1, 2]


def test_records_without_a_timestamp_expire_by_the_age_of_their_segment(context: StorageContext) -> None:
    log = make_log(context, config())
    append(log, b"x" * 40, timestamp=-1)
    append(log, b"x" * 40, timestamp=-1)
    retain(log, NOW_MS + HOUR_MS)
    assert offsets(log) == [0, 1]
    retain(log, NOW_MS + HOUR_MS + 1)
    assert offsets(log) == []


def test_retention_of_an_empty_log_does_nothing(context: StorageContext) -> None:
    log = make_log(context, config(retention_bytes=0))
    assert retained_from(log, NOW_MS + 2 * HOUR_MS, Offset(0)) == 0


def test_records_appended_during_retention_stay(context: StorageContext) -> None:
    log = make_log(context, config())
    fill(log, 2)
    start = retained_from(log, NOW_MS + HOUR_MS + 1, log.log_end_offset)
    append(log, b"late", timestamp=NOW_MS + HOUR_MS, now_ms=NOW_MS + HOUR_MS)
    log.advance_log_start(start)
    job = log.jobs.begin_delete()
    assert job is not None
    job.work()
    log.jobs.finish_delete(job)
    assert offsets(log) == [2]


def test_retention_reads_segment_timestamps_from_disk_after_a_restart(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    fill(the_log(manager, config()), 4, step_ms=10)
    manager._checkpoint_all()
    manager.write_checkpoints()
    manager._disk.close()
    log = the_log(open_manager(RealDisk(str(tmp_path))), config())
    retain(log, NOW_MS + 20 + HOUR_MS)
    assert offsets(log) == [2, 3]
