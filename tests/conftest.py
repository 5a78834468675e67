"""Fixtures and hooks of all tests.

PENSTOCK_TEST_BOOTSTRAP=host:port runs the client tests against another server, for example Apache Kafka, to check the
tests themselves. PENSTOCK_TEST_CLUSTER=3 runs them against a cluster of three brokers.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import os
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support import (
    commit_draw,
    commit_seeds,
    compiled_build,
    first_failures,
    hypothesis_profiles,
    process_marks,
)
from support.broker_process import Address, StartBroker
from support.cluster_processes import serving

EXTERNAL_BOOTSTRAP = os.environ.get("PENSTOCK_TEST_BOOTSTRAP")
SERVERS = ["external"] if EXTERNAL_BOOTSTRAP else ["uvloop", pytest.param("asyncio", marks=pytest.mark.drawn)]


def pytest_addoption(parser: pytest.Parser) -> None:
    first_failures.add_options(parser)
    commit_draw.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    first_failures.configure(config)
    process_marks.watch()
    compiled_build.watch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    compiled_build.skip_doubles(report, None if call.excinfo is None else call.excinfo.value)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    commit_seeds.print_seeds(terminalreporter)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    process_marks.apply(items)
    commit_draw.select(config, items)
    hypothesis_profiles.apply(config, items)
    first_failures.mark_verdicts(items, Path(__file__).parent)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep modules and collected tests out of all garbage collections: they took a fifth of the processor time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    process_marks.begin(item)
    try:
        return (yield)
    finally:
        process_marks.end()


@pytest.fixture(scope="session")
def starts_processes() -> None:
    """Mark of a test that starts processes; fixtures that start processes depend on this one."""


@pytest.fixture(scope="session")
def starts_clusters() -> None:
    """Mark of a test that starts a cluster of processes."""


@pytest.fixture(scope="session", params=SERVERS)
def broker(
    starts_processes: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Address]:
    """A broker shared by the tests of a session, on each event loop in turn."""
    if EXTERNAL_BOOTSTRAP:
        yield Address(EXTERNAL_BOOTSTRAP)
        return
    directory = tmp_path_factory.mktemp(f"broker-{request.param}")
    with serving(directory, [f"event.loop={request.param}", "durability=os"]) as server:
        yield Address(server.bootstrap)


@pytest.fixture
def start_broker(starts_processes: None, tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers with fresh data for this test alone; the test may stop, kill and restart them."""
    with ExitStack() as stack:
        numbers = itertools.count()

        def start(settings: Sequence[str] = ()) -> Any:
            return stack.enter_context(serving(tmp_path / f"broker-{next(numbers)}", settings))

        yield start


@pytest.fixture
def topic_name() -> str:
    """A topic name that no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in a new event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
