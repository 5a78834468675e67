"""Several broker processes of one machine in a cluster with ZooKeeper."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.eventually import eventually
from support.machine_processes import RECORDS, Machine


@pytest.fixture
def machine(starts_processes: None, tmp_path: Path) -> Iterator[Machine]:
    one = Machine(tmp_path)
    yield one
    one.kill()


def adopt(machine: Machine, zookeeper: str) -> subprocess.CompletedProcess[str]:
    options = ["--data-dir", str(machine.broker.data_dir), "--zookeeper", zookeeper]
    command = [sys.executable, "-m", "penstock.cli.main", "cluster", "adopt", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_cluster_adopts_all_processes_and_drains_them_later(machine: Machine, zookeeper: str) -> None:
    machine.start_all(2)
    machine.create_topic()
    machine.produce()
    leaders = machine.leaders()
    refused = adopt(machine, zookeeper)
    assert (refused.returncode, "running" in refused.stderr) == (1, True)
    machine.broker.stop()
    adopted = adopt(machine, zookeeper)
    assert "--processes 2 --zookeeper" in adopted.stdout, adopted.stderr

    machine.settings = (*machine.settings, f"zookeeper.connect={zookeeper}")
    machine.start_all(2)
    eventually(lambda: machine.leaders() == leaders)
    machine.produce(RECORDS)
    assert machine.consume(2 * RECORDS) == list(range(2 * RECORDS))
    machine.broker.stop()

    machine.start(1)
    eventually(lambda: set(machine.leaders().values()) == {1}, details=machine.broker.log_tail)
    assert machine.consume(2 * RECORDS) == list(range(2 * RECORDS))
    machine.broker.stop()
