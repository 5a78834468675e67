"""Clusters on one machine: three Penstock brokers with one ZooKeeper, or three Apache Kafka brokers in KRaft
mode.

Both have three replicas of every partition and min.insync.replicas=2. CPU time and memory are those of the
brokers; ZooKeeper starts and stops with them and is not counted.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import interpreter
from bench.comparison import DEFAULT, KAFKA
from bench.kafka_install import BUILD, ROOT
from bench.ports import free_port_range, free_ports
from bench.servers import Control, Kafka, Penstock, Server, new_cluster_id
from bench.target import Target

BROKERS = 3
NODE_IDS = range(1, BROKERS + 1)
KAFKA_SETTINGS = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
)


class Cluster(Target):
    copies = BROKERS

    def pid(self, node_id: int) -> int:
        raise NotImplementedError

    def kill(self, node_id: int) -> None:
        """Kill a broker with SIGKILL, and return at once."""
        raise NotImplementedError

    def restart(self, node_id: int) -> None:
        """Restart a killed broker with its data, and return when it serves."""
        raise NotImplementedError

    @property
    def pids(self) -> list[int]:
        return [self.pid(node_id) for node_id in NODE_IDS]


class PenstockCluster(Cluster):
    """A Penstock cluster, started with `penstock cluster up`."""

    name = Penstock.name
    durability = "os"

    def __init__(self, settings: Sequence[str] = ()) -> None:
        (BUILD / "bench").mkdir(parents=True, exist_ok=True)
        self._settings = (f"durability={self.durability}", *settings)
        self._directory = Path(tempfile.mkdtemp(prefix="cluster-", dir=BUILD / "bench"))
        self._base_port, self._http_base_port = free_port_range(BROKERS), free_port_range(BROKERS)
        self._pids: dict[int, int] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self._base_port + place}" for place in range(BROKERS))

    def pid(self, node_id: int) -> int:
        return self._pids[node_id]

    @property
    def zookeeper(self) -> tuple[str, int]:
        """Address and process of a broker."""
        told = json.loads(self._run("status", "--json"))["zookeeper"]
        return told["hosts"], told["pid"]

    def start(self) -> None:
        ports = ("--base-port", str(self._base_port), "--http-base-port", str(self._http_base_port))
        chosen = [part for setting in self._settings for part in ("--set", setting)]
        self._run("up", "--detach", "--brokers", str(BROKERS), *ports, *chosen)
        self._look()

    def stop(self) -> None:
        self._run("down")
        self._pids.clear()

    def kill(self, node_id: int) -> None:
        os.kill(self._pids.pop(node_id), signal.SIGKILL)

    def restart(self, node_id: int) -> None:
        self._run("start", str(node_id))
        self._look()

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def show_log(self) -> None:
        for path in sorted(self._directory.glob("broker-*/*.log")):
            lines = path.read_text(errors="replace").splitlines()
            print(f"--- the end of {path} ---", *lines[-20:], sep="\n", file=sys.stderr)

    def _look(self) -> None:
        told = json.loads(self._run("status", "--json"))
        self._pids = {broker["node_id"]: broker["pid"] for broker in told["brokers"] if broker["alive"]}

    def _run(self, verb: str, *options: str) -> str:
        command = interpreter.program("penstock.cli.main", "cluster", verb, *options)
        place = ("--data-dir", str(self._directory / "data"))
        done = subprocess.run(
            [*command, *place],
            cwd=ROOT,
            env=interpreter.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"penstock cluster {verb} failed: {done.stderr.strip()}")
        return done.stdout


class DefaultPenstockCluster(PenstockCluster):
    """Every in-sync replica on the one machine fsyncs before a write is acknowledged."""

    name = DEFAULT
    durability = "auto"


class KafkaCluster(Cluster):
    """Every node is broker and controller, as in the benchmark of one broker."""

    name = KAFKA

    def __init__(self) -> None:
        ports = dict(zip(NODE_IDS, free_ports(BROKERS), strict=True))
        cluster_id = new_cluster_id()

        def make(node_id: int) -> Kafka:
            return Kafka(KAFKA_SETTINGS, node_id, ports, cluster_id)

        with ThreadPoolExecutor(BROKERS) as pool:
            self._members = dict(zip(NODE_IDS, pool.map(make, NODE_IDS), strict=True))

    @property
    def bootstrap(self) -> str:
        return ",".join(member.bootstrap for member in self._members.values())

    def pid(self, node_id: int) -> int:
        return self._members[node_id].pid

    def start(self) -> None:
        for member in self._members.values():
            member.spawn()
        for member in self._members.values():
            member.wait()

    def stop(self) -> None:
        """Start all nodes at once: a quorum needs them."""
        with ThreadPoolExecutor(BROKERS) as pool:
            list(pool.map(Server.stop, self._members.values()))

    def kill(self, node_id: int) -> None:
        self._members[node_id].kill()

    def restart(self, node_id: int) -> None:
        self._members[node_id].stop()
        self._members[node_id].start()

    def remove(self) -> None:
        for member in self._members.values():
            member.remove()

    def show_log(self) -> None:
        for member in self._members.values():
            member.show_log()


class ControlCluster(KafkaCluster):
    """Kafka in Penstock's place, as a check of the benchmark: every ratio must be near 1."""

    name = Control.name
