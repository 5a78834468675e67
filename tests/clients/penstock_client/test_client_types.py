"""Type checks of programs that use the client, with `mypy --strict`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def check(file: str, cache: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), str(HERE / file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parents[2]).stdout


@pytest.mark.usefixtures("starts_processes")
def test_strict_mypy_accepts_typed_program_and_reports_each_mistake(tmp_path: Path) -> None:
    assert check("typed_example.py", tmp_path).startswith("Success")
    wrong = "wrongly_typed_example.py"
    refused = {int(line) for line in re.findall(rf"{wrong}:(\d+): error", check(wrong, tmp_path))}
    lines = (HERE / wrong).read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if re.match(r"\S+\(", line)}
    assert refused == marked | {len(lines)}
