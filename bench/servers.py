"""Penstock and Apache Kafka as processes on free ports, each with its own data directory.

A server is started, responds, and is stopped by SIGTERM within a bounded time; leaving `with` removes its
data. Both are treated alike, so that differences in the figures are those of the brokers.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import interpreter
from bench.kafka_install import BUILD, ROOT, kafka_libs
from bench.ports import free_ports, wait_for_answer
from bench.target import Target

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
OPEN_FILES = 20_000
KAFKA_JVM = (
    # Heap options of Kafka's own start script.
    "-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip


class Server(Target):
    """A broker process; subclasses prepare and start it."""

    source: Path | None = None
    """Directory of the packages of Penstock; None for those of this process."""

    def __init__(self) -> None:
        (BUILD / "bench").mkdir(parents=True, exist_ok=True)
        self.directory = Path(
            tempfile.mkdtemp(prefix=f"{self.name.split()[0].lower()}-", dir=BUILD / "bench")
        )
        self.port = free_ports(1)[0]
        self.process: subprocess.Popen[bytes] | None = None
        self.start_s = 0.0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server is not running"
        return self.process.pid

    @property
    def pids(self) -> list[int]:
        return [self.pid]

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def start(self) -> None:
        """Start the process and wait for its first response; `start_s` is the time in seconds."""
        began = time.monotonic()
        self.spawn()
        self.wait()
        self.start_s = time.monotonic() - began

    def spawn(self) -> None:
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env=interpreter.environment(self.source),
                preexec_fn=_limit_open_files,
            )

    def wait(self) -> None:
        process = self.process
        assert process is not None, "the server is not running"
        wait_for_answer(self.port, START_TIMEOUT_S, alive=lambda: process.poll() is None)

    def kill(self) -> None:
        """Kill the process with SIGKILL without waiting; the data stays."""
        os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stop cleanly; the data stays."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def show_log(self) -> None:
        lines = (self.directory / "server.log").read_text(errors="replace").splitlines()
        print(f"--- the end of {self.name}'s log ---", *lines[-20:], sep="\n", file=sys.stderr)


class Penstock(Server):
    name = "Penstock"

    def __init__(
        self, durability: str = "os", settings: Sequence[str] = (), program: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.http_port = free_ports(1)[0]
        self.settings = (f"durability={durability}", *settings)
        self.program = program or interpreter.program("penstock.cli.main", "broker")

    def command(self) -> Sequence[str]:
        places = ("--data-dir", str(self.directory / "data"), "--port", str(self.port))
        chosen = [part for setting in self.settings for part in ("--set", setting)]
        return (*self.program, *places, "--http-port", str(self.http_port), *chosen)


class DefaultPenstock(Penstock):
    name = "Penstock at its default durability"

    def __init__(self) -> None:
        super().__init__(durability="auto")


class OtherCommit(Penstock):
    """The broker of another commit, see `commits`."""

    name = "Penstock of another commit"


class Kafka(Server):
    """Apache Kafka in KRaft mode, broker and controller in one process, with its default settings except the
    given ones.
    """

    name = "Kafka"

    def __init__(
        self,
        settings: Sequence[str] = (),
        node_id: int = 1,
        controller_ports: Mapping[int, int] | None = None,
        cluster_id: str = "",
    ) -> None:
        """Ports of all nodes; each node of a cluster knows them."""
        super().__init__()
        self.libs = kafka_libs()
        self.properties = self.directory / "server.properties"
        ports = controller_ports or {node_id: free_ports(1)[0]}
        own = self._properties(node_id, ports)
        self.properties.write_text(own + "".join(f"{setting}\n" for setting in settings))
        self._format(cluster_id or new_cluster_id())

    def command(self) -> Sequence[str]:
        return ("java", *KAFKA_JVM, "-cp", f"{self.libs}/*", "kafka.Kafka", str(self.properties))

    def _format(self, cluster_id: str) -> None:
        tool = ("java", "-cp", f"{self.libs}/*", "kafka.tools.StorageTool", "format")
        options = ("--cluster-id", cluster_id, "--config", str(self.properties))
        subprocess.run([*tool, *options], check=True, capture_output=True, timeout=START_TIMEOUT_S)

    def _properties(self, node_id: int, controller_ports: Mapping[int, int]) -> str:
        voters = (f"{voter}@127.0.0.1:{port}" for voter, port in controller_ports.items())
        controller_listener = f"CONTROLLER://127.0.0.1:{controller_ports[node_id]}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},{controller_listener}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            # Free the disk of deleted topics before the next round writes.
            "log.segment.delete.delay.ms": "1000",
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


class Control(Kafka):
    """Kafka in Penstock's place, as a check of the benchmark: every ratio must be near 1."""

    name = "Control"


def new_cluster_id() -> str:
    return uuid.uuid4().hex[:22]


def _limit_open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    os.setpgrp()
