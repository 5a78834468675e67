"""The checklist of docs/security.md: every row names tests, verbs or documents that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
ROWS = re.findall(r"^\| (S\d\d) \|[^|]*\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
VERBS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_checklist_has_all_rows() -> None:
    assert [name for name, _ in ROWS] == [f"S{number:02}" for number in range(1, 26)]


@pytest.mark.parametrize(("name", "proofs"), ROWS, ids=[name for name, _ in ROWS])
def test_row_names_what_exists(name: str, proofs: str) -> None:
    tests = re.findall(r"`(test_\w+\.py)`", proofs)
    verbs = re.findall(r"`make ([a-z-]+)`", proofs)
    documents = re.findall(r"\]\(([^)]+)\)", proofs)
    assert tests or verbs or documents
    assert [test for test in tests if not list((ROOT / "tests").rglob(test))] == []
    assert [verb for verb in verbs if verb not in VERBS] == []
    assert [document for document in documents if not (PAGE.parent / document).exists()] == []
