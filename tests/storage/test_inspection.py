"""Describing and checking segment files from outside."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_helpers import append, checkpoint, make_context, make_log

from penstock.errors import ConfigError
from penstock.storage.inspection import SegmentProblem, check_segment, describe_segment
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig

PATH = "logs/orders-0/00000000000000000000.log"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = make_log(make_context(tmp_path), LogConfig(index_interval_bytes=200))
    for number in range(20):
        append(log, b"%02d" % number * 20, b"second")
    checkpoint(log)
    return log


def test_check_of_an_intact_segment_reports_no_problems(tmp_path: Path, log: Log) -> None:
    seen: list[int] = []
    report = check_segment(make_context(tmp_path).disk, PATH, seen.append)
    assert report.problems == ()
    assert (report.batches, report.records, report.first_offset, report.last_offset) == (20, 40, 0, 39)
    assert report.size_bytes == log.size_bytes
    assert seen == sorted(seen)
    assert len(seen) == 20


def test_a_flipped_bit_in_the_records_is_found(tmp_path: Path, log: Log) -> None:
    file = tmp_path / PATH
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    (problem,) = check_segment(make_context(tmp_path).disk, PATH).problems
    assert problem.position == 0
    assert "CRC of offset 0" in problem.message


def test_batches_behind_a_broken_header_are_still_described(tmp_path: Path, log: Log) -> None:
    file = tmp_path / PATH
    content = bytearray(file.read_bytes())
    positions = [position for position, _ in describe_segment(make_context(tmp_path).disk, PATH)]
    content[positions[5] + 8 : positions[5] + 12] = b"\xff\xff\xff\xff"
    file.write_bytes(content)
    described = list(describe_segment(make_context(tmp_path).disk, PATH))
    assert [position for position, _ in described] == positions
    assert [isinstance(found, SegmentProblem) for _, found in described].index(True) == 5
    report = check_segment(make_context(tmp_path).disk, PATH)
    assert (report.batches, len(report.problems)) == (19, 1)


def test_truncated_segment_is_reported_with_its_position(tmp_path: Path, log: Log) -> None:
    file = tmp_path / PATH
    file.write_bytes(file.read_bytes()[:-1])
    report = check_segment(make_context(tmp_path).disk, PATH)
    assert report.batches == 19
    assert report.problems[0].file == PATH


@pytest.mark.parametrize("damage", [b"\x00" * 20, b"\x01" * 7])
def test_damaged_index_is_reported(tmp_path: Path, log: Log, damage: bytes) -> None:
    index = tmp_path / PATH.replace(".log", ".index")
    index.write_bytes(index.read_bytes() + damage)
    assert check_segment(make_context(tmp_path).disk, PATH).problems


def test_check_of_a_segment_without_an_index_reports_no_problem(tmp_path: Path, log: Log) -> None:
    (tmp_path / PATH.replace(".log", ".index")).unlink()
    assert check_segment(make_context(tmp_path).disk, PATH).problems == ()


def test_check_refuses_files_that_are_no_segments(tmp_path: Path, log: Log) -> None:
    with pytest.raises(ConfigError, match="not a segment file"):
        check_segment(make_context(tmp_path).disk, "logs/orders-0/00000000000000000000.index")
