"""Fixtures that pytest finds wherever Penstock is installed.

Every pytest run loads this module, so it imports the broker only when a test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import Broker

_FIXTURES = ("penstock_broker", "penstock_secure_broker", "penstock_session_broker")


@pytest.fixture
def penstock_broker() -> Iterator[Broker]:
    """A broker for one test, with an empty data directory; `penstock_broker.bootstrap` is its address."""
    yield from _running()


@pytest.fixture
def penstock_secure_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker with TLS and users for one test. The test's clients and commands log in as its administrator."""
    from penstock.testing.broker import Broker

    with Broker(secure=True) as broker:
        for name, value in broker.environment.items():
            monkeypatch.setenv(name, value)
        yield broker


@pytest.fixture(scope="session")
def penstock_session_broker() -> Iterator[Broker]:
    """A broker shared by all tests of the session; each test has to use its own topic and group names."""
    yield from _running()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the broker's log to the report of a failed test."""
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
