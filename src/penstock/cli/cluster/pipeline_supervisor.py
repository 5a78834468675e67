"""Supervisor of pipelines beside a local cluster (`penstock cluster up --pipelines`).

In the foreground, the command restarts the supervisor if it dies. With `--detach` the supervisor is a process of the
cluster, like a broker. It inherits the environment of the command, which contains the login of a secure cluster.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from penstock.cli.cluster.local_cluster import ClusterFile, LocalCluster
from penstock.cli.processes.process_id import end_all, identify

STOP_SECONDS = 90.0
_PAUSE_SECONDS = 5.0


def log_path(directory: Path) -> Path:
    return directory / "pipelines.log"


def start_detached(file: ClusterFile) -> None:
    """Start the supervisor of a running cluster if it is not running, and store its process id in `cluster.json`."""
    with file.locked():
        cluster = file.load()
        if cluster.supervisor is None or not cluster.supervisor.is_alive:
            started = identify(_spawn(cluster.bootstrap, file.directory).pid)
            file.save(msgspec.structs.replace(cluster, supervisor=started))


def stop_detached(cluster: LocalCluster) -> None:
    """Stop a detached supervisor, whose pipelines finish their current batches. The brokers must still be running."""
    if cluster.supervisor is not None:
        end_all([cluster.supervisor], signal.SIGTERM, STOP_SECONDS)


class SupervisorProcess:
    """Supervisor of a cluster in the foreground."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="pipelines", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the supervisor, whose pipelines finish their current batches. The brokers must still be running."""
        self._ended.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join(STOP_SECONDS)

    def _keep(self) -> None:
        while not self._ended.is_set():
            self._process = _spawn(self._bootstrap, self._directory)
            self._process.wait()
            self._ended.wait(_PAUSE_SECONDS)


def _spawn(bootstrap: str, directory: Path) -> subprocess.Popen[bytes]:
    """Start `penstock pipeline serve`, whose output goes to `pipelines.log` in the directory of the cluster.

    The process has its own session, so that Ctrl-C reaches only the command, which stops the supervisor before the
    brokers.
    """
    command = [
        *(sys.executable, "-m", "penstock.cli.main", "pipeline", "serve"),
        *("--bootstrap", bootstrap, "--checkpoints", str(directory.absolute() / "pipelines")),
    ]
    with log_path(directory).open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
