"""`penstock gateway` in a process of its own, in front of any cluster."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from support.broker_process import free_ports, wait_for_http

STOP_SECONDS = 20.0


class GatewayProcess:
    def __init__(
        self, directory: Path, bootstrap: str, settings: tuple[str, ...] = (), workers: int = 1
    ) -> None:
        [self.port] = free_ports(1)
        self.log_path = directory / f"gateway-{self.port}.log"
        self._bootstrap = bootstrap
        self._settings = settings
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> GatewayProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        options = [
            "--bootstrap",
            self._bootstrap,
            "--http-port",
            str(self.port),
            "--workers",
            str(self._workers),
        ]
        options += [part for setting in self._settings for part in ("--set", setting)]
        with self.log_path.open("ab") as log:
            command = [sys.executable, "-m", "penstock.cli.main", "gateway", *options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for_http(self.port)

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(STOP_SECONDS)
        self._process = None
        assert "Traceback" not in self.log_path.read_text(), self.log_path.read_text()[-4_000:]
        return code

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
