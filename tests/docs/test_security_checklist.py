"""The checklist of docs/security.md: every requirement is there, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (S\d\d) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "security.md").read_text())


def test_checklist_has_every_requirement_once() -> None:
    assert [number for number, _, _ in ROWS] == [f"S{number:02}" for number in range(1, 26)]


def test_every_named_test_exists() -> None:
    files = {file.name: file for file in (ROOT / "tests").rglob("test_*.py")}
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for number, _, proof in ROWS:
        named = re.findall(r"`(test_\w+\.py)`", proof)
        for name in named:
            assert name in files, f"{number} names {name}, which does not exist"
            assert re.search(r"^(async )?def test_", files[name].read_text(), re.MULTILINE), name
        run = re.findall(r"`make ([a-z-]+)`", proof)
        assert set(run) <= verbs, f"{number} names a missing verb: {run}"
        links = re.findall(r"\]\((\S+)\)", proof)
        assert all((ROOT / "docs" / link).exists() for link in links), f"{number} names a missing file"
        assert named or run or links, f"{number} names no test"
