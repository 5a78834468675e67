"""Fixtures that pytest finds by itself wherever Penstock is installed.

Loaded by every run of pytest, used or not: it imports nothing until a test asks for a broker.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import Broker

_FIXTURES = ("penstock_broker", "penstock_session_broker")


@pytest.fixture
def penstock_broker() -> Iterator[Broker]:
    """A broker of the test's own, with fresh data; `penstock_broker.bootstrap` is its address."""
    yield from _running()


@pytest.fixture(scope="session")
def penstock_session_broker() -> Iterator[Broker]:
    """A broker that all tests of the session share: give topics and groups names of their own."""
    yield from _running()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows what its broker said."""
    report = yield
    if report.failed:
        for name in _FIXTURES:
            broker: Broker | None = getattr(item, "funcargs", {}).get(name)
            if broker is not None and broker.log_path.exists():
                report.sections.append((f"log of {name}", broker.log_tail()))
    return report


def _running() -> Iterator[Broker]:
    from penstock.testing.broker import Broker

    with Broker() as broker:
        yield broker
