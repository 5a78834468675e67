"""Data directory of a machine with several broker processes.

    DIR/                            data directory of the first broker, which may have run alone before
    DIR/processes/brokers.json      Machine: the brokers, and the processes of the last start
    DIR/processes/lock              held by the supervisor and by each of its brokers
    DIR/processes/store             socket of the common store
    DIR/processes/health/<N>        socket with the metrics and the health of a broker
    DIR/processes/<N>/              data directory of a further broker

The brokers inherit the lock from their supervisor, so the lock is free only when all processes have ended. The sockets
are in a temporary directory if their paths would be too long.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.processes.process_id import ProcessId, end_all, identify
from penstock.net.unix_network import MAX_PATH_BYTES
from penstock.storage.disk import RealDisk
from penstock.storage.log_directories import LOGS, parse_log_directory

PROCESSES = "processes"
FILE = f"{PROCESSES}/brokers.json"
LOCK = f"{PROCESSES}/lock"
OWNER_ONLY = 0o700
MAX_NODE_ID_DIGITS = 10

ORPHAN_SECONDS = 30.0
"""Time in seconds that brokers of a killed supervisor have to stop before they are killed."""
DELETION_SECONDS = 10.0
POLL_SECONDS = 0.02


class Machine(msgspec.Struct, frozen=True):
    first: int
    """Node id of the first broker."""
    brokers: tuple[int, ...]
    """Node ids of all brokers that may have replicas."""
    supervisor: ProcessId | None = None
    processes: dict[str, ProcessId] = {}
    """Broker processes by node id."""


class MachineDirectory:
    def __init__(self, data_dir: str) -> None:
        self.path = Path(data_dir)
        self._lock_fd = -1
        self._sockets: Path | None = None

    @property
    def is_in_use(self) -> bool:
        """True if the directory was last started with several processes."""
        return (self.path / FILE).exists()

    def broker_directory(self, machine: Machine, node_id: int) -> Path:
        return self.path if node_id == machine.first else self.path / PROCESSES / str(node_id)

    # --- lock

    def lock(self) -> int:
        """Take the lock and return its descriptor, which brokers inherit.

        Waits until the brokers of a killed supervisor have ended. Raises Failure if another supervisor runs.
        """
        (self.path / PROCESSES).mkdir(parents=True, exist_ok=True)
        self._lock_fd = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + ORPHAN_SECONDS
        while not self._try_lock():
            machine = self.load()
            if machine is not None and machine.supervisor is not None and machine.supervisor.is_alive:
                raise Failure(
                    f"a broker with several processes runs in {self.path} (pid {machine.supervisor.pid})",
                    "Stop it first, or name another --data-dir.",
                    code=ExitCode.USAGE,
                )
            if time.monotonic() > deadline:
                self._end_orphans(machine)
            time.sleep(POLL_SECONDS)
        return self._lock_fd

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _end_orphans(self, machine: Machine | None) -> None:
        processes = [] if machine is None else list(machine.processes.values())
        if not any(process.is_alive for process in processes):
            raise Failure(
                f"a process of an earlier start still holds {self.path / LOCK}",
                f"Find it with `fuser {self.path / LOCK}` and end it, then start again.",
            )
        end_all(processes, signal.SIGKILL, ORPHAN_SECONDS)

    # --- brokers

    def load(self) -> Machine | None:
        path = self.path / FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=Machine)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise Failure(
                f"cannot read {path}: {error}",
                f"Restore it, or write the node ids of the directories in {path.parent} to it.",
            ) from None

    def save(self, machine: Machine) -> None:
        content = msgspec.json.format(msgspec.json.encode(machine))
        RealDisk(str(self.path)).replace(FILE, content)

    def save_processes(self, machine: Machine, pids: dict[int, int]) -> None:
        """Record the running processes, so that a later start can end them if the supervisor is killed."""
        processes = {str(node_id): identify(pid) for node_id, pid in pids.items()}
        supervisor = identify(os.getpid())
        self.save(msgspec.structs.replace(machine, supervisor=supervisor, processes=processes))

    def has_logs(self, machine: Machine, node_id: int) -> bool:
        with suppress(FileNotFoundError):
            return any(map(parse_log_directory, os.listdir(self.broker_directory(machine, node_id) / LOGS)))
        return False

    async def until_empty(self, machine: Machine, node_id: int) -> None:
        """Wait until a drained broker has deleted its logs, for at most DELETION_SECONDS."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DELETION_SECONDS):
                while self.has_logs(machine, node_id):
                    await asyncio.sleep(POLL_SECONDS)

    def remove_broker(self, machine: Machine, node_id: int) -> bool:
        """Remove the directory of a drained broker. If it still contains a log, it is kept and False is returned."""
        if self.has_logs(machine, node_id):
            return False
        shutil.rmtree(self.broker_directory(machine, node_id), ignore_errors=True)
        return True

    def forget(self) -> None:
        """Make this the directory of a single broker again. The directories of other brokers are kept."""
        (self.path / FILE).unlink(missing_ok=True)

    # --- sockets

    def make_sockets(self, machine: Machine) -> Path:
        """Create the directory of the sockets, without sockets of earlier starts, and return it."""
        directory = self.path / PROCESSES
        longest = directory / "health" / ("9" * MAX_NODE_ID_DIGITS)
        if len(os.fsencode(longest)) > MAX_PATH_BYTES:
            directory = self._sockets = Path(mkdtemp(prefix="penstock-"))
        health = directory / "health"
        shutil.rmtree(health, ignore_errors=True)
        health.mkdir(OWNER_ONLY)
        for node_id in machine.brokers:
            (health / str(node_id)).touch()  # not a socket yet: the broker counts as not serving
        return directory

    def remove_sockets(self) -> None:
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
        shutil.rmtree(self.path / PROCESSES / "health", ignore_errors=True)
