"""Simulation seeds derived from the commit: each commit has its own seeds, and all runs of a commit share
them.

Each test run prints them at its end. Replay a failed seed with `python -m simulation --broker --seed
N` or `--cluster --seed N`.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

PROPERTY = "seeds of this commit"
"""Name of the test property in which a test records its seeds."""
_FIRST, _LAST = 10_000, 9_999_999
_NO_COMMIT = "no commit"


def commit() -> str:
    """The commit that is checked out, or a placeholder outside of a repository."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return _NO_COMMIT
    return found.stdout.strip()


def commit_seeds(kind: str, count: int, of: str | None = None) -> list[int]:
    return random.Random(f"{kind} {of or commit()}").sample(range(_FIRST, _LAST + 1), count)


def print_seeds(reporter: pytest.TerminalReporter) -> None:
    """Print the seeds that tests of this run recorded."""
    reports = [*reporter.stats.get("passed", ()), *reporter.stats.get("failed", ())]
    recorded = {seeds for report in reports for name, seeds in report.user_properties if name == PROPERTY}
    for seeds in sorted(recorded):
        reporter.write_line(f"{PROPERTY} ({commit()[:12]}): {seeds}")
