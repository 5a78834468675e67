"""Programs that log in to a broker with TLS and users, part of `make clients`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.broker_process import free_ports

START_LINE = "penstock serves"


@dataclass(frozen=True, slots=True)
class SecureBroker:
    bootstrap: str
    authority: Path
    password: str

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.bootstrap, str(self.authority), "admin", self.password)


@contextmanager
def secure_broker(directory: Path) -> Iterator[SecureBroker]:
    """Broker that was started with `--secure`."""
    [port] = free_ports(1)
    data = directory / "data"
    command = [sys.executable, "-m", "penstock.cli.main", "broker", "--secure", "--http-port", "-1"]
    command += ["--data-dir", str(data), "--port", str(port)]
    environment = os.environ | {"XDG_CONFIG_HOME": str(directory / "home")}
    with (
        (directory / "broker.log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            while START_LINE not in process.stdout.readline():
                assert process.poll() is None, (directory / "broker.log").read_text()
            tls = data / "tls"
            password = (tls / "admin.password").read_text().strip()
            yield SecureBroker(f"127.0.0.1:{port}", tls / "ca.pem", password)
        finally:
            process.terminate()
