"""Fewer partitions under load and kills lose nothing; `make count-cycles` runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from count_cycles import run_block


@pytest.mark.drawn
@pytest.mark.usefixtures("starts_clusters")
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_while_partitions_go_lose_nothing(tmp_path: Path, seed: int) -> None:
    result = run_block(tmp_path, seed, cycles=1, say=print)
    assert result.violations == ()
