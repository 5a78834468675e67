"""A broker process that can be started, stopped, killed, and started again on the same data.

Every wait has a timeout. `stop` checks that the exit code is 0 and that the log has no traceback.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.01
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, 0)


class BrokerProcess:
    def __init__(self, directory: Path, settings: Sequence[str] = ()) -> None:
        self.data_dir = directory / "data"
        self.log_path = directory / "broker.log"
        self.settings = tuple(settings)
        self.port, self.http_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start the broker and wait until it responds. Ports and data stay the same, so that clients find it again."""
        self.spawn()
        self.wait_until_ready()

    def spawn(self) -> None:
        assert self._process is None, "the broker is running"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, env=self._environment())

    def wait_until_ready(self) -> None:
        assert self._process is not None, "the broker is not running"
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the broker does not answer:\n{self.log_tail()}")
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        return answers(self.port)

    def stop(self) -> None:
        """Stop the broker cleanly, as an operator would."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end {STOP_TIMEOUT_S:.0f} s after SIGTERM:\n{self.log_tail()}") from None
        self._process = None
        assert code == 0, f"exit code {code}:\n{self.log_tail()}"
        self.check_log()

    def kill(self) -> None:
        """Kill the broker with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def check_log(self) -> None:
        text = self.log_path.read_text(errors="replace")
        assert "Traceback (most recent call last)" not in text, text[-6_000:]

    def _command(self) -> list[str]:
        places = [
            "--data-dir",
            str(self.data_dir),
            "--port",
            str(self.port),
            "--http-port",
            str(self.http_port),
        ]
        chosen = [part for setting in self.settings for part in ("--set", setting)]
        return [sys.executable, "-m", "penstock.cli.main", "broker", *places, *chosen]

    def _environment(self) -> dict[str, str]:
        """Return the environment without PENSTOCK_ variables, so that the user's settings do not affect this broker."""
        return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}

    def log_tail(self) -> str:
        return self.log_path.read_text(errors="replace")[-4_000:]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def answers(port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Return whether a broker responds to ApiVersions at the port, with TLS if a context is given."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as plain:
            if tls is None:
                plain.sendall(API_VERSIONS_V0)
                return len(plain.recv(8, socket.MSG_WAITALL)) == 8
            with tls.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                connection.sendall(API_VERSIONS_V0)
                return len(connection.recv(8)) > 0
    except OSError:
        return False
