"""The second run of `make test`: the tests it runs again, the tests it does not, and the logs of the first run."""

from __future__ import annotations

import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from support.first_failures import VERDICTS

pytestmark = pytest.mark.usefixtures("starts_processes")

TESTS = Path(__file__).parents[1]
CONFTEST = """
from pathlib import Path
from support import first_failures

def pytest_addoption(parser):
    first_failures.add_options(parser)

def pytest_configure(config):
    config.addinivalue_line("markers", "verdict: judges data")
    config.addinivalue_line("markers", "process: starts processes")
    first_failures.configure(config)

def pytest_collection_modifyitems(items):
    first_failures.mark_verdicts(items, Path(__file__).parent)
    for item in items:
        if "unit" not in item.nodeid:
            item.add_marker("process")
"""
FAILS_ONCE = """
from pathlib import Path

def test_first():
    print("what was captured")
    tried = Path(__file__).with_suffix(".tried")
    was_tried = tried.exists()
    tried.touch()
    assert was_tried

def test_other():
    pass
"""


def suite(directory: Path, name: str) -> Path:
    (directory / "conftest.py").write_text(CONFTEST)
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(FAILS_ONCE)
    return file


def pytest_run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        "/dev/null",
        "--rootdir=.",
        *options,
    ]
    environment = os.environ | {"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60)


def both_runs(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert pytest_run(directory, "--first-failures", "kept", *options).returncode == 1
    return pytest_run(
        directory, "--last-failed", "--last-failed-no-failures", "none", "--second-run-of", "kept"
    )


def test_a_late_process_test_passes_in_the_second_run(tmp_path: Path) -> None:
    suite(tmp_path, "cli/test_slow.py")
    second = both_runs(tmp_path)
    assert second.returncode == 0, second.stdout
    assert "needed a second run: cli/test_slow.py::test_first" in second.stdout
    assert "1 passed" in second.stdout


def test_a_verdict_about_data_is_final(tmp_path: Path) -> None:
    tried = suite(tmp_path, "faults/test_history.py").with_suffix(".tried")
    suite(tmp_path, "cli/test_slow.py")
    second = both_runs(tmp_path, "-p", "xdist.plugin", "-n", "2")
    assert tried.exists()
    assert second.returncode == 1, second.stdout
    assert "not run again: faults/test_history.py::test_first" in second.stdout
    assert "needed a second run: cli/test_slow.py::test_first" in second.stdout
    assert "1 passed" in second.stdout


def test_a_test_without_processes_is_not_run_again(tmp_path: Path) -> None:
    suite(tmp_path, "wire/test_unit.py")
    suite(tmp_path, "cli/test_slow.py")
    second = both_runs(tmp_path)
    assert second.returncode == 1, second.stdout
    assert "not run again: wire/test_unit.py::test_first" in second.stdout
    assert "needed a second run: cli/test_slow.py::test_first" in second.stdout


def test_a_run_fails_when_verdicts_are_all_that_failed(tmp_path: Path) -> None:
    suite(tmp_path, "storage/test_log.py")
    second = both_runs(tmp_path)
    assert second.returncode == 1, second.stdout
    assert "passed" not in second.stdout


def test_the_log_of_a_first_failure_is_kept(tmp_path: Path) -> None:
    suite(tmp_path, "cli/test_slow.py")
    both_runs(tmp_path)
    [log] = [file.read_text() for file in (tmp_path / "kept").glob("*.txt")]
    assert "assert was_tried" in log
    assert "what was captured" in log


@pytest.mark.parametrize(
    "path",
    ["faults/test_changed_bytes.py", "pipeline/test_sink_aborts.py", "pipeline/test_archive_unshared.py"],
)
def test_lost_and_duplicated_rows_are_verdicts(path: str) -> None:
    assert (TESTS / path).exists()
    assert any(fnmatch(path, pattern) for pattern in VERDICTS)
