"""RabbitMQ, NATS and Redis from the packages of the distribution, as processes on free ports with their own data.

A peer that is not installed is `None`; its rows are left out, and the report of the run names it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.ports import free_ports
from bench.servers import Server

_RABBITMQ = "usr/lib/rabbitmq/lib"


class Peer(Server):
    """A queue server that is compared by its own protocol."""

    program: str
    """Name of the program, as it is looked up in PATH."""
    protocol: str
    """Name of the protocol in `bench.drivers.peer_queues`."""
    durability: str
    """Whether a confirmed message is synced, or in the page cache."""

    @classmethod
    def is_installed(cls) -> bool:
        return shutil.which(cls.program) is not None

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process is None or self.process.poll() is None, f"{self.name} has ended"
                time.sleep(0.05)
        raise TimeoutError(f"{self.name} does not accept connections")


class Redis(Peer):
    name, program, protocol = "Redis streams", "redis-server", "redis"
    durability = "page cache"

    def command(self) -> Sequence[str]:
        return (self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory))


class Nats(Peer):
    name, program, protocol = "NATS JetStream", "nats-server", "nats"
    durability = "page cache"

    def command(self) -> Sequence[str]:
        place = ("-a", "127.0.0.1", "-p", str(self.port))
        return (self.program, *place, "-js", "-sd", str(self.directory / "data"))


class RabbitMq(Peer):
    """One node with a quorum queue, and a port mapper of its own."""

    name, program, protocol = "RabbitMQ quorum queue", "rabbitmq-server", "amqp"
    durability = "fsync"

    def __init__(self) -> None:
        super().__init__()
        self._mapper_port, self._node_port = free_ports(2)
        self._mapper: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        # The script in PATH changes the user; the one of the package does not.
        return (str(max(Path("/", _RABBITMQ).glob("rabbitmq_server-*/sbin/rabbitmq-server"))),)

    def environment(self) -> Mapping[str, str]:
        directory = self.directory
        (directory / "plugins").write_text("[].")
        return {
            **os.environ,
            "HOME": str(directory),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        }

    def spawn(self) -> None:
        mapper = ("epmd", "-port", str(self._mapper_port), "-address", "127.0.0.1")
        self._mapper = subprocess.Popen(mapper, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, env=self.environment(), preexec_fn=os.setpgrp
            )

    def stop(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.process = None
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()
            self._mapper = None


PEERS: tuple[type[Peer], ...] = (RabbitMq, Nats, Redis)
