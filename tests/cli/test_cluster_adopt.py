"""`penstock cluster adopt` refuses all but the directory of a stopped broker; tests/docs runs it on real
brokers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.cluster.adopt import SET_ASIDE
from penstock.cli.main import run
from penstock.server.environment import STORE_FILE
from penstock.storage.disk import RealDisk


def adopt(directory: Path) -> int:
    return run(["cluster", "adopt", "--data-dir", str(directory), "--zookeeper", "127.0.0.1:1/nowhere"])


def test_a_directory_without_a_store_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert adopt(tmp_path) == 2
    assert "is not the data directory of a standalone broker" in capsys.readouterr().err
    (tmp_path / SET_ASIDE).touch()
    assert adopt(tmp_path) == 2
    assert "is already part of a cluster" in capsys.readouterr().err


def test_cluster_adopt_refuses_the_directory_of_a_running_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / STORE_FILE).touch()
    broker = RealDisk(str(tmp_path))
    assert broker.lock()
    assert adopt(tmp_path) == 1
    assert "a broker is running in" in capsys.readouterr().err


def test_a_damaged_store_is_refused_and_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / STORE_FILE).write_bytes(b"no store")
    assert adopt(tmp_path) == 1
    assert "is damaged" in capsys.readouterr().err
    assert (tmp_path / STORE_FILE).exists()
