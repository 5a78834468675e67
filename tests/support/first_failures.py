"""The second run of failed tests by `make test`: which failures it may replace, and the logs of the first run.

Processes on a busy machine are late at times, so tests that start processes run once more, alone, after a failure. Two
kinds of failures are final: those of tests that start no process, and those of tests that judge data (`VERDICTS`:
histories, models, exactly-once), unless a verdict failed in a fixture, before the test itself began.

--first-failures DIR   the first run: writes one file for each failed test, and DIR/final, the list of final failures
--second-run-of DIR    the second run: leaves final failures out, and fails if there is one
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from fnmatch import fnmatch
from pathlib import Path

import pytest

VERDICTS = (
    "simulation/*",
    "faults/*",
    "storage/*",
    "replication/*",
    "transactions/*",
    "pipeline/*",
    "*/test_*_model.py",
    "*/test_*_properties.py",
    "*/test_*_crashes.py",
    "*/test_*_deaths.py",
    "*/test_*_kills.py",
    "clients/penstock_client/test_delivery.py",
    "clients/penstock_client/test_exactly_once.py",
    "clients/python_clients/test_transactions_*.py",
    "server/test_transactions*.py",
)
"""Tests whose failure may mean lost or duplicated data, by their path under tests/."""
_LIST = "final"
_MOST_NAME_CHARACTERS = 150


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        "--first-failures", type=Path, metavar="DIR", help="keep the logs of failed tests in DIR"
    )
    parser.addoption(
        "--second-run-of", type=Path, metavar="DIR", help="leave out tests whose failure is final"
    )


def configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    directory = config.getoption("--first-failures")
    if directory is not None and not is_worker:
        config.pluginmanager.register(FirstRun(directory))
    directory = config.getoption("--second-run-of")
    if directory is not None and not is_worker:
        config.pluginmanager.register(SecondRun(directory))


def mark_verdicts(items: Iterable[pytest.Item], tests: Path) -> None:
    for item in items:
        path = item.path.relative_to(tests).as_posix() if item.path.is_relative_to(tests) else ""
        if any(fnmatch(path, pattern) for pattern in VERDICTS):
            item.add_marker(pytest.mark.verdict)


class FirstRun:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]+", "-", report.nodeid)[-_MOST_NAME_CHARACTERS:]
        captured = "".join(f"\n--- {title}\n{content}" for title, content in report.sections)
        with (self._directory / f"{name}.txt").open("a") as file:
            file.write(f"{report.nodeid} ({report.when})\n{report.longreprtext}\n{captured}\n")
        if _is_final(report):
            with (self._directory / _LIST).open("a") as file:
                file.write(f"{report.nodeid}\n")


def _is_final(report: pytest.TestReport) -> bool:
    if "process" not in report.keywords:
        return True
    return "verdict" in report.keywords and report.when != "setup"


class SecondRun:
    def __init__(self, directory: Path) -> None:
        file = directory / _LIST
        self._final = sorted(set(file.read_text().splitlines())) if file.exists() else []
        self._directory = directory
        self._again: list[str] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Leave out final failures after --last-failed chose: it runs everything if no failed test is left."""
        yield
        failed = [item for item in items if item.nodeid in self._final]
        items[:] = [item for item in items if item.nodeid not in self._final]
        self._again = [item.nodeid for item in items]
        config.hook.pytest_deselected(items=failed)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._final:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self._again:
            terminalreporter.write_line(f"needed a second run: {nodeid}")
        for nodeid in self._final:
            terminalreporter.write_line(f"FAILED, not run again: {nodeid}", red=True)
        terminalreporter.write_line(f"the logs of the first run are in {self._directory}")
