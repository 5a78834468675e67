"""Lock, record and sockets of a machine with several broker processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.failures import Failure
from penstock.cli.processes import machine_directory
from penstock.cli.processes.machine_directory import FILE, Machine, MachineDirectory
from penstock.net.unix_network import MAX_PATH_BYTES
from support.eventually import eventually

HOLDER = "import sys, time; print('holds', flush=True); time.sleep(600)"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_directory, "ORPHAN_SECONDS", 0.2)


def start_holder(descriptor: int) -> subprocess.Popen[bytes]:
    """Process that has inherited the lock, as a broker does."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, pass_fds=[descriptor])
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"holds\n"
    return holder


@pytest.mark.usefixtures("starts_processes", "hurried")
def test_hung_broker_of_an_ended_supervisor_is_killed(tmp_path: Path) -> None:
    former = MachineDirectory(str(tmp_path))
    descriptor = former.lock()
    with start_holder(descriptor) as holder:
        former.save_processes(Machine(1, (1, 2)), {2: holder.pid})
        recorded = former.load()
        assert recorded is not None
        former.save(Machine(1, (1, 2), processes=recorded.processes))  # the supervisor has ended
        former.unlock()
        MachineDirectory(str(tmp_path)).lock()
        assert holder.wait(10) < 0


@pytest.mark.usefixtures("starts_processes", "hurried")
def test_unknown_holder_of_the_lock_is_reported(tmp_path: Path) -> None:
    former = MachineDirectory(str(tmp_path))
    descriptor = former.lock()
    with start_holder(descriptor) as holder:
        former.save(Machine(1, (1, 2)))
        former.unlock()
        with pytest.raises(Failure, match="an earlier start still holds"):
            MachineDirectory(str(tmp_path)).lock()
        assert holder.poll() is None
        holder.kill()
    eventually(lambda: MachineDirectory(str(tmp_path)).lock() >= 0)


def test_running_supervisor_is_named(tmp_path: Path) -> None:
    directory = MachineDirectory(str(tmp_path))
    directory.lock()
    directory.save_processes(Machine(1, (1, 2)), {})
    with pytest.raises(Failure, match=f"pid {os.getpid()}"):
        MachineDirectory(str(tmp_path)).lock()
    directory.unlock()
    MachineDirectory(str(tmp_path)).lock()


def test_damaged_record_is_refused_with_its_path(tmp_path: Path) -> None:
    directory = MachineDirectory(str(tmp_path))
    directory.lock()
    (tmp_path / FILE).write_text("{")
    with pytest.raises(Failure, match=r"cannot read .*brokers\.json"):
        directory.load()


def test_sockets_are_private_and_start_without_leftovers(tmp_path: Path) -> None:
    directory = MachineDirectory(str(tmp_path / "d"))
    directory.lock()
    (tmp_path / "d" / "processes" / "health").mkdir()
    (tmp_path / "d" / "processes" / "health" / "7").touch()
    sockets = directory.make_sockets(Machine(1, (1, 2)))
    assert sorted(os.listdir(sockets / "health")) == ["1", "2"]
    assert stat.S_IMODE((sockets / "health").stat().st_mode) == 0o700


def test_long_data_directory_has_sockets_elsewhere(tmp_path: Path) -> None:
    directory = MachineDirectory(str(tmp_path / ("d" * MAX_PATH_BYTES)))
    directory.lock()
    sockets = directory.make_sockets(Machine(1, (1,)))
    assert len(os.fsencode(sockets / "health" / "1")) <= MAX_PATH_BYTES
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    directory.remove_sockets()
    assert not sockets.exists()


def test_directory_with_a_log_is_kept(tmp_path: Path) -> None:
    directory, machine = MachineDirectory(str(tmp_path)), Machine(1, (1, 2))
    logs = directory.broker_directory(machine, 2) / "logs"
    (logs / "orders-0-Jd0pZzVhRk2sTnHcYQ8v1w").mkdir(parents=True)
    assert not directory.remove_broker(machine, 2)
    (logs / "orders-0-Jd0pZzVhRk2sTnHcYQ8v1w").rmdir()
    assert directory.remove_broker(machine, 2)
    assert not logs.exists()
