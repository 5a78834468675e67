"""Three brokers of Penstock with one ZooKeeper, or three of Apache Kafka in KRaft mode, on one machine.

Both keep three copies of everything, of which two must have a write. What is measured is the brokers: ZooKeeper is
stopped and started with them, and in no figure of processor time or memory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.comparison import DEFAULT, KAFKA
from bench.kafka_install import BUILD
from bench.ports import free_ports
from bench.servers import Control, Kafka, Penstock, Server, new_cluster_id
from bench.target import Target
from penstock.cli.zookeeper_process import Member, ZooKeeperProcess

BROKERS = 3
NODE_IDS = range(1, BROKERS + 1)
REPLICATED = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
)


class Cluster(Target):
    copies = BROKERS

    def __init__(self, members: Sequence[Server]) -> None:
        self.members = dict(zip(NODE_IDS, members, strict=True))

    @property
    def bootstrap(self) -> str:
        return ",".join(member.bootstrap for member in self.members.values())

    @property
    def pids(self) -> list[int]:
        return [member.pid for member in self.members.values()]

    def start(self) -> None:
        for member in self.members.values():
            member.spawn()
        for member in self.members.values():
            member.wait()

    def stop(self) -> None:
        """All at once: the last of a quorum would wait in vain for the others."""
        with ThreadPoolExecutor(BROKERS) as pool:
            list(pool.map(Server.stop, self.members.values()))

    def remove(self) -> None:
        for member in self.members.values():
            member.remove()

    def show_log(self) -> None:
        for member in self.members.values():
            member.show_log()


class PenstockCluster(Cluster):
    name = Penstock.name
    durability = "os"

    def __init__(self, settings: Sequence[str] = ()) -> None:
        (BUILD / "bench").mkdir(parents=True, exist_ok=True)
        self._directory = Path(tempfile.mkdtemp(prefix="zookeeper-", dir=BUILD / "bench"))
        (port,) = free_ports(1)
        self._zookeeper = ZooKeeperProcess(str(self._directory), [Member(port, 0, 0)])
        super().__init__(
            [
                Penstock(
                    self.durability, (f"node.id={node_id}", f"zookeeper.connect=127.0.0.1:{port}", *settings)
                )
                for node_id in NODE_IDS
            ]
        )

    def start(self) -> None:
        self._zookeeper.start()
        super().start()

    def stop(self) -> None:
        super().stop()
        self._zookeeper.stop()

    def remove(self) -> None:
        super().remove()
        shutil.rmtree(self._directory, ignore_errors=True)


class DefaultPenstockCluster(PenstockCluster):
    """On one machine every member of an in-sync set fsyncs before a write is acknowledged."""

    name = DEFAULT
    durability = "auto"


class KafkaCluster(Cluster):
    """Every node is broker and controller, as for one broker."""

    name = KAFKA

    def __init__(self, settings: Sequence[str] = ()) -> None:
        ports = dict(zip(NODE_IDS, free_ports(BROKERS), strict=True))
        cluster_id = new_cluster_id()

        def make(node_id: int) -> Kafka:
            return Kafka((*REPLICATED, *settings), node_id, ports, cluster_id)

        with ThreadPoolExecutor(BROKERS) as pool:
            super().__init__(list(pool.map(make, NODE_IDS)))


class ControlCluster(KafkaCluster):
    """Kafka in Penstock's place: every ratio must then be near 1."""

    name = Control.name
