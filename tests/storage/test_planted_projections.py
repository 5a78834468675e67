"""Planted bugs of projected reads, each caught by the checks of a reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import test_projected_reads as reads
from test_projected_reads import Reader, append, expected, open_log

from penstock.records.control import build_skipped_range
from penstock.storage.aborted_transactions import AbortedTransactions
from penstock.storage.log import Log
from penstock.storage.log_view import LogView
from penstock.storage.projection import reading
from penstock.storage.projection.match_index import MatchIndex
from penstock.storage.projection.match_run import MatchRun, TakenEntries

FLAGS = [[False] * 3, [True, False, True], [False] * 5, [False, True], [False] * 4]


def check(log: Log) -> None:
    """Read a log with matches, gaps and a stretch without matches at its end."""
    for flags in FLAGS:
        append(log, flags)
    reader = Reader(log)
    for start in range(log.high_watermark):
        assert [record.offset for record in reader.all(start)] == expected(log, start)


def skip(shift: int) -> Callable[[int, int, int], bytearray]:
    return lambda first, last, epoch: build_skipped_range(first, max(first, last + shift), epoch)


@pytest.mark.parametrize("shift", [-1, 1])
def test_skipped_range_of_a_wrong_length_is_noticed(tmp_path: Path, shift: int) -> None:
    with patch.object(reading, "build_skipped_range", skip(shift)), pytest.raises(AssertionError):
        check(open_log(tmp_path))


def test_match_index_that_outlives_a_truncation_is_noticed(tmp_path: Path) -> None:
    def follow(index: MatchIndex, view: LogView) -> None:
        index._max_decompressed_bytes = view.max_decompressed_bytes

    with patch.object(MatchIndex, "_follow", follow), pytest.raises(Exception):  # noqa: B017
        reads.test_matches_of_truncated_records_are_dropped(open_log(tmp_path))


def test_a_missing_list_of_aborted_transactions_is_noticed(tmp_path: Path) -> None:
    with (
        patch.object(AbortedTransactions, "reaches", lambda *_: False),
        pytest.raises(AssertionError),
    ):
        reads.test_markers_and_aborted_transactions_are_passed_to_readers_of_a_view(open_log(tmp_path))


def test_lost_match_of_a_view_is_noticed(tmp_path: Path) -> None:
    whole = MatchRun.take
    with (
        patch.object(
            MatchRun, "take", lambda run, offset: TakenEntries(whole(run, offset).entries[24:], None)
        ),
        pytest.raises(AssertionError),
    ):
        check(open_log(tmp_path))


def test_without_a_planted_bug_the_checks_pass(tmp_path: Path) -> None:
    check(open_log(tmp_path))
