"""Exactly once while brokers and copiers are killed; `make copy-cycles` runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from copiers import run


@pytest.mark.usefixtures("starts_clusters")
def test_copiers_move_every_message_exactly_once(tmp_path: Path) -> None:
    run(tmp_path, messages=2_000, kills=3, say=print)
