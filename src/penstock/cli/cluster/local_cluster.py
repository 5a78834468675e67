"""State of a cluster on this machine: `cluster.json` in its directory, read and replaced as a whole.

The directory of a cluster contains:

    DIR/cluster.json            LocalCluster
    DIR/cluster.lock            lock of the command that changes the cluster
    DIR/zookeeper/              data and output of ZooKeeper, if the cluster runs its own
    DIR/broker-<N>/data/        data directory of a broker
    DIR/broker-<N>/broker.log   output of a broker
    DIR/pipelines/              checkpoints of pipelines, if the cluster has a supervisor
    DIR/pipelines.log           output of the supervisor
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.processes.process_id import ProcessId
from penstock.cli.secure_cluster import enter_cluster
from penstock.storage.disk import RealDisk

FILE = "cluster.json"
LOCK = "cluster.lock"
LOCALHOST = "127.0.0.1"


class LocalBroker(msgspec.Struct, frozen=True):
    node_id: int
    port: int
    http_port: int
    process: ProcessId | None = None
    """Process of the last start. It may have ended."""
    has_tls: bool = False
    """True if the broker serves Kafka clients and HTTP with TLS and authentication."""

    @property
    def running(self) -> ProcessId | None:
        return self.process if self.process is not None and self.process.is_alive else None

    @property
    def address(self) -> str:
        return f"{LOCALHOST}:{self.port}"

    @property
    def http_address(self) -> str:
        return f"{'https' if self.has_tls else 'http'}://{LOCALHOST}:{self.http_port}"


class LocalZooKeeper(msgspec.Struct, frozen=True):
    hosts: str
    """Connection string for brokers (zookeeper.connect)."""
    port: int | None = None
    """Port of the cluster's own ZooKeeper; None for an external ZooKeeper."""
    process: ProcessId | None = None
    has_tls: bool = False
    """True if the cluster's own ZooKeeper was started with TLS."""

    @property
    def running(self) -> ProcessId | None:
        return self.process if self.process is not None and self.process.is_alive else None

    @property
    def may_use_tls(self) -> bool:
        """True if brokers can connect with TLS to the cluster's own ZooKeeper: it has TLS, or it is not running and
        will be started with TLS.
        """
        return self.port is not None and (self.has_tls or self.running is None)


class Form(msgspec.Struct, frozen=True):
    """Options that the cluster was created with. Brokers may have been added or removed later."""

    brokers: int = 3
    base_port: int = 19_092
    http_base_port: int = 18_080
    zookeeper: str | None = None
    """Connection string of an external ZooKeeper; None if the cluster starts its own."""
    secure: bool = False
    """True if the cluster was created with certificates and an administrator."""
    insecure: bool = False
    """True if brokers may serve other machines without authentication."""


class LocalCluster(msgspec.Struct, frozen=True):
    form: Form
    brokers: tuple[LocalBroker, ...]
    zookeeper: LocalZooKeeper
    settings: dict[str, str]
    """Settings for all brokers of the cluster."""
    supervisor: ProcessId | None = None
    """Supervisor of pipelines started by the last `up --detach --pipelines`. It may have ended."""

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def broker(self, node_id: int) -> LocalBroker:
        for broker in self.brokers:
            if broker.node_id == node_id:
                return broker
        present = ", ".join(str(broker.node_id) for broker in self.brokers)
        raise Failure(f"there is no broker {node_id}", f"Broker ids are {present}.", code=ExitCode.USAGE)

    def with_broker(self, changed: LocalBroker) -> LocalCluster:
        """Return the cluster with a broker added, or replaced if its node id is known."""
        others = [broker for broker in self.brokers if broker.node_id != changed.node_id]
        brokers = sorted([*others, changed], key=lambda broker: broker.node_id)
        return msgspec.structs.replace(self, brokers=tuple(brokers))

    def without_broker(self, node_id: int) -> LocalCluster:
        brokers = tuple(broker for broker in self.brokers if broker.node_id != node_id)
        return msgspec.structs.replace(self, brokers=brokers)

    def with_zookeeper(self, process: ProcessId, *, has_tls: bool) -> LocalCluster:
        zookeeper = msgspec.structs.replace(self.zookeeper, process=process, has_tls=has_tls)
        return msgspec.structs.replace(self, zookeeper=zookeeper)


class ClusterFile:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def broker_directory(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}"

    def log_path(self, node_id: int) -> Path:
        return self.broker_directory(node_id) / "broker.log"

    @property
    def zookeeper_directory(self) -> Path:
        return self.directory / "zookeeper"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that prevents other commands from changing the cluster."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Failure(
                f"cannot use the directory {self.directory}: {error.strerror}",
                "Name a directory that this user can write to with --data-dir.",
                code=ExitCode.USAGE,
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def load(self) -> LocalCluster:
        cluster = self.load_if_there()
        if cluster is None:
            raise Failure(
                f"{self.directory} contains no cluster",
                f"Create one with `penstock cluster up --data-dir {self.directory}`.",
                code=ExitCode.USAGE,
            )
        return cluster

    def load_if_there(self) -> LocalCluster | None:
        path = self.directory / FILE
        try:
            cluster = msgspec.json.decode(path.read_bytes(), type=LocalCluster)
            if cluster.form.secure:
                enter_cluster(self.directory)
            return cluster
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise Failure(
                f"cannot read {path}: {error}", "Restore the file, or name another directory with --data-dir."
            ) from None

    def save(self, cluster: LocalCluster) -> None:
        content = msgspec.json.format(msgspec.json.encode(cluster))
        RealDisk(str(self.directory)).replace(FILE, content)
