"""Exactly once while brokers and copiers are killed; `make copiers` does more of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from copiers import run


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_copiers_move_every_message_exactly_once(tmp_path: Path) -> None:
    run(tmp_path, messages=8_000, kills=4, say=print)
