"""Errors at the start of a broker name the next step."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import main
from penstock.cli.broker_process import _next_step
from penstock.cluster.coordination import StoreUnreachable
from penstock.config import BrokerConfig
from penstock.errors import ConfigError, PenstockError, StorageError


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (ConfigError("node.id=x: give an integer"), "Correct the setting"),
        (StorageError("the disk is broken"), "penstock log check"),
        (StoreUnreachable("localhost:2181"), "Start ZooKeeper"),
    ],
)
def test_failed_start_names_the_next_step(error: PenstockError, step: str) -> None:
    assert step in _next_step(BrokerConfig({}), error)


def test_wrong_setting_of_a_command_names_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["broker", "--data-dir", str(tmp_path), "--set", "num.partitions=many"]) != 0
    assert "Correct the setting and run the command again." in capsys.readouterr().err
