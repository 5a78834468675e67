"""Lookup of records by time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import NOW_MS, append, append_batch, checkpoint, make_batch, make_context, make_log

from penstock.config.topic_values import MessageTimestampType
from penstock.model import Offset
from penstock.records.batch import write_crc
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=150)


def find(log: Log, timestamp: int, below: int | None = None) -> tuple[int, int] | None:
    found = log.find_timestamp(timestamp, log.log_end_offset if below is None else Offset(below))
    return None if found is None else (found.offset, found.timestamp)


def newest(log: Log, below: int | None = None) -> tuple[int, int] | None:
    found = log.max_timestamp(None if below is None else Offset(below))
    return None if found is None else (found.offset, found.timestamp)


def test_time_lookup_finds_the_first_record_inside_its_batch(tmp_path: Path) -> None:
    log = make_log(make_context(tmp_path))
    append_batch(log, make_batch([b"a", b"b", b"c"], timestamps=[10, 30, 20]))
    append_batch(log, make_batch([b"d"], timestamps=[25]))
    assert find(log, 5) == (0, 10)
    assert find(log, 11) == (1, 30)
    assert find(log, 30) == (1, 30)
    assert find(log, 31) is None


def test_time_lookup_returns_the_leader_epoch(tmp_path: Path) -> None:
    log = make_log(make_context(tmp_path))
    append(log, b"a", timestamp=10)
    found = log.find_timestamp(10, Offset(1))
    assert found is not None
    assert found.leader_epoch == 3


def test_time_lookup_finds_no_record_at_or_above_its_bound(tmp_path: Path) -> None:
    log = make_log(make_context(tmp_path))
    append(log, b"a", timestamp=10)
    append_batch(log, make_batch([b"b", b"c"], timestamps=[20, 30]))
    assert find(log, 15, below=1) is None
    assert find(log, 25, below=2) is None
    assert find(log, 15, below=2) == (1, 20)


def test_time_lookup_finds_no_record_before_the_log_start(tmp_path: Path) -> None:
    log = make_log(make_context(tmp_path), SMALL)
    for number in range(40):
        append(log, b"x", timestamp=1000 - number)
    log.advance_log_start(Offset(5))
    assert find(log, 0) == (5, 995)
    assert newest(log) == (5, 995)
    assert find(log, 996) is None


def test_time_lookup_uses_the_batch_time_with_log_append_time(tmp_path: Path) -> None:
    log = make_log(
        make_context(tmp_path), LogConfig(message_timestamp_type=MessageTimestampType.LOG_APPEND_TIME)
    )
    append(log, b"a", b"b", timestamp=5, now_ms=NOW_MS)
    append(log, b"c", b"d", timestamp=6, now_ms=NOW_MS + 10)
    assert find(log, NOW_MS) == (0, NOW_MS)
    assert find(log, NOW_MS + 1) == (2, NOW_MS + 10)
    assert newest(log) == (2, NOW_MS + 10)


def test_time_lookup_returns_the_base_offset_of_an_unreadable_batch(tmp_path: Path) -> None:
    log = make_log(make_context(tmp_path))
    batch = make_batch([b"a", b"b"], timestamps=[10, 20])
    batch[61] = 0x7E
    write_crc(batch)
    append_batch(log, batch)
    assert find(log, 15) == (0, 20)


def test_time_lookup_in_an_empty_log_finds_no_record(tmp_path: Path) -> None:
    log = make_log(make_context(tmp_path))
    assert find(log, 0) is None
    assert newest(log) is None


@settings(max_examples=60)
@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=25),
    start=st.integers(0, 10),
    bound=st.integers(0, 110),
    saved=st.booleans(),
)
def test_time_lookups_agree_with_a_scan(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], start: int, bound: int, saved: bool
) -> None:
    log = make_log(make_context(tmp_path_factory.mktemp("log")), SMALL)
    times: list[int] = []
    for timestamps in batches:
        append_batch(log, make_batch([b"x"] * len(timestamps), timestamps=timestamps))
        times += timestamps
    if saved:
        checkpoint(log)
    start = min(start, len(times))
    log.advance_log_start(Offset(start))
    below = max(start, min(bound, len(times)))
    visible = list(enumerate(times))[start:below]
    for timestamp in range(0, 62, 5):
        expected = next((pair for pair in visible if pair[1] >= timestamp), None)
        assert find(log, timestamp, below) == expected
    best = max(visible, key=lambda pair: (pair[1], -pair[0]), default=None)
    assert newest(log, below) == best
