from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_process import free_ports
from penstock.cli.failures import Failure
from penstock.cli.zookeeper_process import Member, ZooKeeperProcess, find_jars, find_java


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    server = new_server(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def chroots() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperProcess, chroots: Iterator[int]) -> str:
    """Where a shared server gives this test a tree of its own."""
    return f"127.0.0.1:{zookeeper_server.port}/test/{next(chroots)}"


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    """A server that the test may stop and kill."""
    server = new_server(tmp_path / "zookeeper")
    server.start()
    yield server
    server.kill()


def new_server(directory: Path) -> ZooKeeperProcess:
    try:
        find_java()
        find_jars()
    except Failure as missing:
        pytest.skip(f"{missing} (penstock[cluster] brings both)")
    [port] = free_ports(1)
    return ZooKeeperProcess(str(directory), [Member(port, 0, 0)])
