"""Share groups lose nothing and repeat nothing that was accepted; `make queue-cycles` runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from share_cycles import run_block


@pytest.mark.usefixtures("starts_processes")
def test_kills_lose_no_record_and_repeat_no_accepted_one(tmp_path: Path) -> None:
    result = run_block(tmp_path, seed=1, cycles=10, say=print)
    assert result.violations == ()


@pytest.mark.usefixtures("starts_clusters")
@pytest.mark.long_faults
def test_kills_in_a_cluster_lose_no_record_and_repeat_no_accepted_one(tmp_path: Path) -> None:
    result = run_block(tmp_path, seed=1, cycles=10, say=print, brokers=3)
    assert result.violations == ()
