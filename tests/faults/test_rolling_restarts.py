"""Nothing is lost or doubled by orderly restarts under load; `make rolling-restarts` does more of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rolling_restarts import run_restart_block


@pytest.mark.usefixtures("starts_clusters")
@pytest.mark.timeout(300)
def test_nothing_is_lost_or_doubled_by_a_rolling_restart_under_load(tmp_path: Path) -> None:
    result = run_restart_block(tmp_path, seed=1, restarts=3, say=print)
    assert result.violations == ()
