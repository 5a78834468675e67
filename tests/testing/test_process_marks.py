"""Marks of tests that start processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("starts_processes")
TESTS = Path(__file__).parents[1]
SUITE = """
import subprocess, sys
import pytest

def start():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.fixture
def broker(starts_processes):
    start()

def test_with_a_fixture(broker):
    start()

@pytest.mark.usefixtures("starts_processes")
def test_by_name():
    start()

def test_unmarked():
    start()

def test_without_processes():
    pass
"""


def pytest_run(directory: Path, *options: str) -> str:
    (directory / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (directory / "test_suite.py").write_text(SUITE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-c",
        str(TESTS.parent / "pyproject.toml"),
        "--rootdir=.",
    ]
    environment = os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}"}
    done = subprocess.run(
        [*command, *options, "test_suite.py"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


def test_unmarked_test_that_starts_a_process_fails(tmp_path: Path) -> None:
    shown = pytest_run(tmp_path, "-p", "no:cacheprovider")
    assert "1 failed, 3 passed" in shown, shown
    assert "test_unmarked starts python" in shown


def test_marked_tests_are_left_out_of_fast_runs(tmp_path: Path) -> None:
    shown = pytest_run(tmp_path, "-p", "no:cacheprovider", "-m", "not process")
    assert "1 failed, 1 passed, 2 deselected" in shown, shown
