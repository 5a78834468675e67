"""Acknowledged records survive `kill -9` at any moment; `make kill-cycles` runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_kills import run_cluster_block
from kill_cycles import run_block


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long_faults)])
def test_kills_under_load_lose_and_duplicate_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    result = run_block(tmp_path, seed, cycles=10, say=print)
    assert result.violations == ()


@pytest.mark.usefixtures("starts_clusters")
def test_kills_in_a_cluster_lose_and_duplicate_nothing_acknowledged(tmp_path: Path) -> None:
    result = run_cluster_block(tmp_path, seed=1, cycles=5, say=print)
    assert result.violations == ()
