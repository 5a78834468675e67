"""Crashes of archivers, tasks and brokers: the archive holds every record once."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_crashes import RECORDS, STEPS
from archive_helpers import digest, job, make, numbers, produce, rows
from in_process import InProcess
from pyarrow.parquet import ParquetWriter

from penstock.pipeline.archive import archiver
from penstock.pipeline.archive.archiver import Archiver
from penstock.testing.process import BrokerProcess


@pytest.fixture
def broker(starts_processes: None, tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path)
    broker.start()
    yield broker
    broker.stop()


def test_archiver_killed_at_any_step_archives_every_record_once(
    penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    make(bootstrap, "crashes", archive_required="true")
    script = Path(__file__).with_name("archive_crashes.py")
    command = [sys.executable, str(script), bootstrap, str(tmp_path / "archive"), "crashes"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert told.returncode == 0, told.stdout + told.stderr
    lines = told.stdout.splitlines()
    assert len(lines) == 2 * len(STEPS)
    assert [line for line in lines if not line.endswith("killed")] == []
    found = rows(tmp_path / "archive")
    count = RECORDS * (2 * len(STEPS) + 1)
    assert numbers(found) == list(range(count))
    assert digest(row["value"] for row in found) == digest(b"value %d" % number for number in range(count))


def test_only_one_attempt_of_a_task_counts(penstock_session_broker: BrokerProcess, tmp_path: Path) -> None:
    bootstrap = penstock_session_broker.bootstrap
    make(bootstrap, "speculative")
    produce(bootstrap, "speculative", range(100))
    list(Archiver(job(bootstrap, tmp_path / "archive", "speculative"), InProcess(2), pytest.fail).run())
    assert numbers(rows(tmp_path / "archive")) == list(range(100))


def test_archiving_survives_broker_restart(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(broker.bootstrap, "failover")
    produce(broker.bootstrap, "failover", range(100))
    write = archiver._write_range

    def interrupted(*arguments: object) -> object:
        broker.kill()
        broker.spawn()
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(archiver, "_write_range", interrupted)
    list(Archiver(job(broker.bootstrap, tmp_path / "archive", "failover"), InProcess(), pytest.fail).run())
    assert numbers(rows(tmp_path / "archive")) == list(range(100))


def test_full_disk_leaves_no_files_and_next_run_continues(
    penstock_session_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, place = penstock_session_broker.bootstrap, tmp_path / "archive"
    make(bootstrap, "spacious")
    produce(bootstrap, "spacious", range(100))
    archiver = Archiver(job(bootstrap, place, "spacious"), InProcess(), pytest.fail)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ParquetWriter, "write_table", full)
        with pytest.raises(OSError, match="No space left"):
            list(archiver.run())
    assert not [*place.rglob("*.parquet")]
    list(archiver.run())
    assert numbers(rows(place)) == list(range(100))
