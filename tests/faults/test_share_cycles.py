"""Share groups lose nothing and repeat nothing that was accepted; `make queue-cycles` runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from dead_letter_judge import judge_dead_letters
from share_cycles import run_block


def test_judge_notices_doubled_missing_and_unfounded_dead_letters() -> None:
    letters = {(0, 1): ["rejected"], (0, 2): ["attempts"]}
    assert judge_dead_letters(letters, {(0, 1)}, {(0, 1)}) == []
    assert judge_dead_letters({(0, 1): ["rejected", "rejected"]}, {(0, 1)}, set())
    assert judge_dead_letters(letters, set(), set())
    assert judge_dead_letters(letters, {(0, 1), (0, 3)}, {(0, 3)})
    assert judge_dead_letters({}, set(), set())


@pytest.mark.usefixtures("starts_processes")
def test_kills_lose_no_record_and_repeat_no_accepted_one(tmp_path: Path) -> None:
    result = run_block(tmp_path, seed=1, cycles=10, say=print)
    assert result.violations == ()


@pytest.mark.usefixtures("starts_clusters")
@pytest.mark.long_faults
def test_kills_in_a_cluster_lose_no_record_and_repeat_no_accepted_one(tmp_path: Path) -> None:
    result = run_block(tmp_path, seed=1, cycles=10, say=print, brokers=3)
    assert result.violations == ()


@pytest.mark.usefixtures("starts_processes")
def test_kills_leave_one_dead_letter_for_each_rejected_record(tmp_path: Path) -> None:
    result = run_block(tmp_path, seed=2, cycles=3, say=print, has_dead_letters=True)
    assert result.violations == ()


@pytest.mark.usefixtures("starts_clusters")
@pytest.mark.long_faults
def test_kills_in_a_cluster_leave_one_dead_letter_for_each_rejected_record(tmp_path: Path) -> None:
    result = run_block(tmp_path, seed=2, cycles=3, say=print, brokers=3, has_dead_letters=True)
    assert result.violations == ()
