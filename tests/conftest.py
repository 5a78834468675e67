"""Fixtures for tests against a real broker process.

With PENSTOCK_TEST_BOOTSTRAP=host:port the client tests run against that server instead: that is how the tests
themselves are checked, on Apache Kafka. With PENSTOCK_TEST_CLUSTER=3 they run against a cluster of three brokers.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from support import commit_seeds, first_failures
from support.broker_process import Address, BrokerProcess, StartBroker
from support.cluster_processes import ClusterProcesses, serving

EXTERNAL_BOOTSTRAP = os.environ.get("PENSTOCK_TEST_BOOTSTRAP")


def pytest_addoption(parser: pytest.Parser) -> None:
    first_failures.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    first_failures.configure(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    commit_seeds.print_seeds(terminalreporter)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first_failures.mark_verdicts(items, Path(__file__).parent)


@pytest.fixture(scope="session", params=["external"] if EXTERNAL_BOOTSTRAP else ["uvloop", "asyncio"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """A broker shared by the tests of a session, on each event loop in turn."""
    if EXTERNAL_BOOTSTRAP:
        yield Address(EXTERNAL_BOOTSTRAP)
        return
    directory = tmp_path_factory.mktemp(f"broker-{request.param}")
    with serving(directory, [f"event.loop={request.param}", "durability=os"]) as server:
        yield Address(server.bootstrap)


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers of the test's own, with fresh data; the test may stop, kill and start them again."""
    with ExitStack() as stack:
        numbers = itertools.count()

        def start(settings: Sequence[str] = ()) -> BrokerProcess | ClusterProcesses:
            return stack.enter_context(serving(tmp_path / f"broker-{next(numbers)}", settings))

        yield start


@pytest.fixture
def topic_name() -> str:
    """A topic nobody else uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An `async def` test runs in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
