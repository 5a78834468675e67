"""Brokers with TLS and users for programs that log in, part of `make clients`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.broker_process import free_ports
from support.ports import free_range

START_LINE = "penstock serves"
NO_RIGHTS_NEEDED = ("--set", "authorization.mode=report")
"""The programs create users and use them at once."""


@dataclass(frozen=True, slots=True)
class SecureBroker:
    bootstrap: str
    authority: Path
    password: str

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.bootstrap, str(self.authority), "admin", self.password)


@contextmanager
def secure_cluster(directory: Path) -> Iterator[SecureBroker]:
    """Cluster of three brokers that was started with `--secure`."""
    first, data = free_range(20), directory / "cluster"
    program = [sys.executable, "-m", "penstock.cli.main", "cluster"]
    ports = ["--base-port", str(first + 1), "--http-base-port", str(first + 10)]  # ZooKeeper takes the first
    environment = os.environ | {"XDG_CONFIG_HOME": str(directory / "home")}
    up = [*program, "up", "--secure", "--detach", "--data-dir", str(data), *ports, *NO_RIGHTS_NEEDED]
    subprocess.run(up, env=environment, check=True, stdout=subprocess.DEVNULL)
    try:
        bootstrap = ",".join(f"localhost:{first + number}" for number in (1, 2, 3))
        password = (data / "tls" / "admin.password").read_text().strip()
        yield SecureBroker(bootstrap, data / "tls" / "ca.pem", password)
    finally:
        subprocess.run([*program, "down", "--data-dir", str(data)], env=environment, check=True)


@contextmanager
def secure_broker(directory: Path) -> Iterator[SecureBroker]:
    """Broker that was started with `--secure`."""
    [port] = free_ports(1)
    data = directory / "data"
    command = [sys.executable, "-m", "penstock.cli.main", "broker", "--secure", "--http-port", "-1"]
    command += ["--data-dir", str(data), "--port", str(port), *NO_RIGHTS_NEEDED]
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
