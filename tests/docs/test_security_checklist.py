"""The checklist of docs/security.md: all rows are there, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (S\d\d) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def test_every_row_names_tests_that_exist() -> None:
    rows = dict(ROW.findall((ROOT / "docs/security.md").read_text()))
    assert list(rows) == [f"S{number:02}" for number in range(1, 26)]
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    makefile = (ROOT / "Makefile").read_text()
    for row, content in rows.items():
        named = re.findall(r"test_\w+\.py", content)
        verbs = re.findall(r"`make ([a-z-]+)`", content)
        assert named or verbs or row == "S24", f"{row} names no test"
        assert not set(named) - tests, row
        assert all(f"\n{verb}:" in makefile for verb in verbs), row
