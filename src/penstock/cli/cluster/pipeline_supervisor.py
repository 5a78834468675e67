"""Supervisor of pipelines beside a local cluster (`penstock cluster up --pipelines`), started again if it dies."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

_STOP_SECONDS = 90.0
_PAUSE_SECONDS = 5.0


class SupervisorProcess:
    """Child process `penstock pipeline serve`, whose output goes to `pipelines.log` in the directory of the cluster."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.log_path = directory / "pipelines.log"
        self._command = [
            *(sys.executable, "-m", "penstock.cli.main", "pipeline", "serve"),
            *("--bootstrap", bootstrap, "--checkpoints", str(directory / "pipelines")),
        ]
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="pipelines", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let pipelines stop after their batches, while the brokers still serve."""
        self._ended.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join(_STOP_SECONDS)

    def _keep(self) -> None:
        while not self._ended.is_set():
            with self.log_path.open("ab") as log:
                # A session of its own: Ctrl-C reaches the command, which stops the supervisor before the brokers.
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            self._process.wait()
            self._ended.wait(_PAUSE_SECONDS)
