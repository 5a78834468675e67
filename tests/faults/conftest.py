"""Clusters for the fault tests. Skips the long tests unless PENSTOCK_ALL_FAULTS is set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from linked_cluster import LinkedCluster, StartCluster

from penstock.cli.cluster.zookeeper_process import find_jars, find_java
from penstock.cli.failures import Failure
from support.cluster_processes import ClusterProcesses

ALL_FAULTS = bool(os.environ.get("PENSTOCK_ALL_FAULTS"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long_faults") and not ALL_FAULTS:
            item.add_marker(pytest.mark.skip(reason="`make faults` runs it"))


@pytest.fixture
def start_cluster(starts_clusters: None, tmp_path: Path) -> Iterator[StartCluster]:
    """Start clusters for this test alone."""
    try:
        find_java()
        find_jars()
    except Failure as missing:
        pytest.skip(f"{missing} (penstock[cluster] brings both)")
    with ExitStack() as stack:

        def start(*settings: str, size: int = 3, linked: bool = True) -> ClusterProcesses:
            kind = LinkedCluster if linked else ClusterProcesses
            cluster = kind(tmp_path / "cluster", size, settings)
            stack.callback(cluster.close)
            cluster.start()
            return cluster

        yield start
