from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.cluster.zookeeper_process import EnsembleMember, ZooKeeperProcess, find_jars, find_java
from penstock.cli.failures import Failure
from support.broker_process import free_ports


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait at registration: most tests have no leaders that could remove the broker."""
    monkeypatch.setattr("penstock.cluster.membership.REMOVAL_WAIT_SECONDS", 0.05)


@pytest.fixture(scope="session")
def zookeeper_parts() -> None:
    try:
        find_java()
        find_jars()
    except Failure as missing:
        pytest.skip(f"{missing} (penstock[cluster] brings both)")


@pytest.fixture(scope="session")
def zookeeper_server(
    starts_processes: None, zookeeper_parts: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperProcess]:
    yield from running_server(tmp_path_factory.mktemp("zookeeper"))


@pytest.fixture(scope="session")
def chroots() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperProcess, chroots: Iterator[int]) -> str:
    """Connect string with a chroot of its own on the shared server."""
    return f"127.0.0.1:{zookeeper_server.port}/test/{next(chroots)}"


@pytest.fixture
def own_zookeeper(
    starts_processes: None, zookeeper_parts: None, tmp_path: Path
) -> Iterator[ZooKeeperProcess]:
    """ZooKeeper server that the test may stop and kill."""
    yield from running_server(tmp_path / "zookeeper")


def running_server(directory: Path) -> Iterator[ZooKeeperProcess]:
    [port] = free_ports(1)
    server = ZooKeeperProcess(str(directory), [EnsembleMember(port, 0, 0)])
    server.start()
    yield server
    server.kill()
