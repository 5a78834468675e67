"""No record is lost or duplicated by clean restarts under load; `make rolling-restarts` runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from rolling_restarts import run_restart_block


@pytest.mark.usefixtures("starts_clusters")
def test_rolling_restart_under_load_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    result = run_restart_block(tmp_path, seed=1, restarts=3, say=print)
    assert result.violations == ()
