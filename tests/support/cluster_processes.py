"""A cluster of processes: one ZooKeeper server, and brokers that a test stops, kills, pauses and starts again.

ClusterProcesses has the methods of BrokerProcess, so that tests of one broker also run against a cluster: with
PENSTOCK_TEST_CLUSTER=3, `serving` starts three brokers. Every wait is bounded.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata

from penstock.cli.cluster.zookeeper_process import EnsembleMember, ZooKeeperProcess
from support.broker_process import BrokerProcess, answers, free_ports
from support.eventually import eventually

CLUSTER_SIZE = int(os.environ.get("PENSTOCK_TEST_CLUSTER", "0"))
"""Size of the cluster that client tests run against; 0 means one broker without ZooKeeper."""
BROKERS = CLUSTER_SIZE or 1
"""Number of brokers that client tests run against, and the replication factor of the topics they create."""
PATIENCE_S = 60.0
START_PATIENCE_S = 120.0
"""Bound for the start of a broker: several start at once, beside other tests."""
POLL_S = 0.05
SESSION_TIMEOUT_MS = 6_000
QUICK = (f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}", "offsets.topic.num.partitions=6")


class ClusterProcesses:
    def __init__(self, directory: Path, size: int = 3, settings: Sequence[str] = ()) -> None:
        [port] = free_ports(1)
        self.zookeeper = ZooKeeperProcess(str(directory / "zookeeper"), [EnsembleMember(port, 0, 0)])
        self._zookeeper_runs = False
        self.brokers: dict[int, BrokerProcess] = {}
        for number in range(1, size + 1):
            (directory / str(number)).mkdir(parents=True)
            of_broker = (f"node.id={number}", f"zookeeper.connect=127.0.0.1:{port}")
            self.brokers[number] = BrokerProcess(directory / str(number), (*of_broker, *QUICK, *settings))

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def running(self) -> list[int]:
        return [number for number, broker in self.brokers.items() if broker.running]

    def start(self) -> None:
        """Start the processes that do not run, and wait until every broker sees all brokers."""
        self.start_zookeeper()
        self.start_brokers(number for number, broker in self.brokers.items() if not broker.running)
        everybody = set(self.brokers)
        for number in everybody:
            self.until(partial(self._sees, number, everybody), f"broker {number} sees all brokers")

    def _sees(self, number: int, brokers: set[int]) -> bool:
        return set(self.metadata(number).brokers) == brokers

    def start_zookeeper(self) -> None:
        if not self._zookeeper_runs:
            self.zookeeper.start()
            self._zookeeper_runs = True

    def kill_zookeeper(self) -> None:
        self._zookeeper_runs = False
        self.zookeeper.kill()

    def start_brokers(self, numbers: Iterable[int]) -> None:
        chosen = list(numbers)
        for number in chosen:
            self.brokers[number].spawn()
        for number in chosen:
            port = self.brokers[number].port
            self.until(partial(answers, port), f"broker {number} responds", START_PATIENCE_S)

    def stop(self) -> None:
        """Stop the brokers cleanly, one after the other. ZooKeeper keeps running."""
        for broker in self.brokers.values():
            broker.stop()

    def kill(self) -> None:
        """Kill all brokers at once. ZooKeeper keeps running."""
        self.kill_brokers(self.brokers)

    def kill_brokers(self, numbers: Iterable[int]) -> None:
        chosen = [self.brokers[number] for number in numbers if self.brokers[number].running]
        for broker in chosen:
            os.kill(broker.pid, signal.SIGKILL)
        for broker in chosen:
            broker.kill()

    def pause(self, number: int) -> None:
        """Stop the threads of a broker with SIGSTOP, and return once all of them have stopped."""
        os.kill(self.brokers[number].pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.brokers[number].pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self, number: int) -> None:
        os.kill(self.brokers[number].pid, signal.SIGCONT)

    def empty(self, number: int) -> None:
        """Delete the data of a stopped broker, as if its disk had been replaced."""
        assert not self.brokers[number].running
        shutil.rmtree(self.brokers[number].data_dir)

    def close(self) -> None:
        self.kill()
        self.kill_zookeeper()

    def metadata(self, number: int | None = None) -> ClusterMetadata:
        """Cluster metadata from one broker, or from any broker that responds."""
        servers = self.bootstrap if number is None else self.brokers[number].bootstrap
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        metadata: ClusterMetadata = admin.list_topics(timeout=PATIENCE_S)
        return metadata

    def controller(self) -> int:
        self.until(lambda: self.metadata().controller_id > 0, "there is a controller")
        return int(self.metadata().controller_id)

    def leader(self, topic: str, partition: int = 0, seen_by: int | None = None) -> int:
        return int(self.metadata(seen_by).topics[topic].partitions[partition].leader)

    def in_sync(self, topic: str, partition: int = 0, seen_by: int | None = None) -> set[int]:
        return set(self.metadata(seen_by).topics[topic].partitions[partition].isrs)

    def wait_until_healed(self) -> None:
        """Wait until every broker sees a leader and a full in-sync replica set for every partition.

        A broker may still be starting.
        """
        problems: list[str] = []

        def healed() -> bool:
            brokers = set(self.brokers)
            try:
                problems[:] = [
                    text for number in brokers for text in _problems(self.metadata(number), brokers)
                ]
            except KafkaException as error:
                problems[:] = [f"a broker does not respond: {error}"]
            return not problems

        try:
            self.until(healed, "all replicas are in sync", START_PATIENCE_S)
        except AssertionError as error:
            error.add_note("\n".join(problems))
            raise

    def make_groups_known(self) -> None:
        """Create the offsets topic with a first group, because some clients give up at NOT_COORDINATOR."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "first", "log_level": 0})

        def known() -> bool:
            with suppress(KafkaException):
                consumer.committed([TopicPartition("none", 0)], PATIENCE_S)
                return True
            return False

        self.until(known, "groups have coordinators")
        consumer.close()
        self.wait_until_healed()

    def until(self, condition: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
        eventually(condition, what, within_s=within_s, poll_s=POLL_S, details=self.log_tails)

    def log_tails(self) -> str:
        return "\n".join(f"broker {number}:\n{b.log_tail()}" for number, b in self.brokers.items())


def _problems(seen: ClusterMetadata, brokers: set[int]) -> Iterator[str]:
    """Missing brokers, leaders and in-sync replicas in the metadata of one broker."""
    by = f"seen by {seen.orig_broker_id}"
    if set(seen.brokers) != brokers:
        yield f"{by}: brokers {sorted(seen.brokers)}"
    for topic in seen.topics.values():
        for number, partition in topic.partitions.items():
            if partition.leader == -1 or set(partition.isrs) != set(partition.replicas):
                yield f"{by}: {topic.topic}-{number}: leader {partition.leader}, in sync {partition.isrs}"


@contextmanager
def serving(directory: Path, settings: Sequence[str] = ()) -> Iterator[BrokerProcess | ClusterProcesses]:
    """A running broker or cluster. A clean stop at the end is part of the test."""
    if not CLUSTER_SIZE:
        directory.mkdir(parents=True, exist_ok=True)
    server = (
        ClusterProcesses(directory, CLUSTER_SIZE, settings)
        if CLUSTER_SIZE
        else BrokerProcess(directory, settings)
    )
    try:
        server.start()
        if isinstance(server, ClusterProcesses):
            server.make_groups_known()
        yield server
        server.stop()
    finally:
        server.kill()
        if isinstance(server, ClusterProcesses):
            server.close()
