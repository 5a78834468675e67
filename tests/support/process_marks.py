"""Marks of tests that start processes, taken from the fixtures that the tests use.

A fixture that starts processes depends on `starts_processes`, one that starts a cluster on `starts_clusters`; a test
that starts processes in its body names one of them with `usefixtures`. A test that starts a process without either
fails, so that `make test-fast` runs no processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

MARKS = {
    "starts_processes": ("process",),
    "starts_clusters": ("process", "slow"),
    "penstock_broker": ("process",),
    "penstock_session_broker": ("process",),
    "spark": ("process", "spark", "slow"),
}
"""Marks by fixture. The fixtures of the pytest plugin `penstock` are listed because they cannot depend on ours."""
_HARMLESS = ("git",)
"""Commands that any test may run: the seeds of a commit come from git."""

_unmarked: str | None = None
"""The running test, if it must not start processes."""


def apply(items: Iterable[pytest.Item]) -> None:
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            for mark in MARKS.get(fixture, ()):
                item.add_marker(mark)


def watch() -> None:
    """Fail tests without the mark `process` that start a process."""
    sys.addaudithook(_refuse)


def begin(item: pytest.Item) -> None:
    global _unmarked
    _unmarked = None if item.get_closest_marker("process") else item.nodeid


def end() -> None:
    global _unmarked
    _unmarked = None


def _refuse(event: str, arguments: Sequence[Any]) -> None:
    if event != "subprocess.Popen" or _unmarked is None:
        return
    program = os.path.basename(os.fsdecode(arguments[0]))
    assert program in _HARMLESS, (
        f"{_unmarked} starts {program}: name the fixture starts_processes with usefixtures"
    )
