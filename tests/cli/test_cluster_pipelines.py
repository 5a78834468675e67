"""`penstock cluster up --pipelines` with `--secure` and `--detach`: a cluster with users and its supervisor."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_cluster_local import COMMAND_SECONDS, Cluster, make_cluster

from penstock.cli.cluster.local_cluster import ClusterFile
from penstock.cli.cluster.pipeline_supervisor import log_path
from penstock.cli.processes.process_id import ProcessId, end_all
from support.eventually import eventually


@pytest.fixture
def secure_cluster(
    starts_clusters: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    present = [name for name in os.environ if name.startswith("PENSTOCK_")]
    for name in {*present, "PENSTOCK_CA", "PENSTOCK_USER", "PENSTOCK_PASSWORD_FILE"}:
        monkeypatch.setenv(
            name, ""
        )  # reading cluster.json sets the login of the cluster, which must not outlive the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    directory = tmp_path / "cluster"
    yield from make_cluster(directory, 1)
    known = ClusterFile(directory).load_if_there()
    if known is not None and known.supervisor is not None:
        end_all([known.supervisor], signal.SIGKILL, COMMAND_SECONDS)


def test_detached_cluster_with_users_has_one_supervisor_until_it_is_stopped(
    secure_cluster: Cluster,
) -> None:
    cluster = secure_cluster
    said = cluster.penstock(*cluster.up_command("--secure", "--detach", "--pipelines"))
    assert f"pipelines: log in {log_path(cluster.directory)}" in said
    supervisor = supervisor_of(cluster)
    eventually(lambda: "running the pipelines of" in log_of(cluster), details=lambda: log_of(cluster))
    assert supervisor.is_alive
    cluster.penstock(*cluster.up_command("--secure", "--detach", "--pipelines"))
    assert supervisor_of(cluster) == supervisor, "a supervisor that runs is not started again"
    cluster.penstock("cluster", "down")
    assert cluster.nothing_runs()
    assert not supervisor.is_alive
    assert "Traceback" not in log_of(cluster)


def log_of(cluster: Cluster) -> str:
    return log_path(cluster.directory).read_text()


def supervisor_of(cluster: Cluster) -> ProcessId:
    found = ClusterFile(cluster.directory).load().supervisor
    assert found is not None
    return found
