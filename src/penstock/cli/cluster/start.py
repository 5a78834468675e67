"""Start of processes of a cluster on this machine. If one of them fails, all of them are killed.

The processes have their own sessions and continue after the command; `cluster.json` identifies them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec

from penstock.cli.admin_client import admin_client
from penstock.cli.cluster.local_cluster import LOCALHOST, ClusterFile, LocalBroker, LocalCluster
from penstock.cli.cluster.local_plan import check_ports
from penstock.cli.cluster.zookeeper_process import (
    EnsembleMember,
    ZooKeeperProcess,
    ZooKeeperTls,
    check_installed,
)
from penstock.cli.failures import Failure
from penstock.cli.processes.process_id import ProcessId, end_all, identify
from penstock.cli.secure_cluster import zookeeper_tls
from penstock.config.loading import ENVIRONMENT_PREFIX
from penstock.errors import BrokerError

START_SECONDS = 60.0
POLL_SECONDS = 0.02
LAST_LINES = 8


class ClusterStart:
    """One start of processes: waits until all of them serve, and kills them if one of them fails."""

    def __init__(self, file: ClusterFile) -> None:
        self.children: list[subprocess.Popen[bytes]] = []
        self._file = file
        self._zookeeper: ZooKeeperProcess | None = None
        self._brokers: list[tuple[LocalBroker, subprocess.Popen[bytes]]] = []
        self._deadline = time.monotonic() + START_SECONDS

    def run(
        self, change: Callable[[LocalCluster | None], LocalCluster], node_id: int | None = None
    ) -> LocalCluster:
        """Start one broker, or all stopped brokers, of the cluster returned by `change`."""
        try:
            with self._file.locked():
                cluster = self._spawn(change(self._file.load_if_there()), node_id)
            if self._zookeeper is not None:
                self._zookeeper.wait_until_serving()
            asyncio.run(self._wait_until_serving())
        except BaseException:
            end_all([identify(child.pid) for child in self.children], signal.SIGKILL, START_SECONDS)
            raise
        return cluster

    def _spawn(self, cluster: LocalCluster, node_id: int | None) -> LocalCluster:
        wanted = cluster.brokers if node_id is None else [cluster.broker(node_id)]
        brokers = [broker for broker in wanted if broker.running is None]
        port = None if cluster.zookeeper.running else cluster.zookeeper.port
        check_ports(cluster, brokers, port)
        if port is not None:
            check_installed()  # checked before the cluster is saved, so that the next `up` can still change it
        try:
            if port is not None:
                tls = zookeeper_tls(cluster.settings)
                cluster = cluster.with_zookeeper(self._spawn_zookeeper(port, tls), has_tls=tls is not None)
            for broker in brokers:
                child = _spawn_broker(self._file, cluster, broker)
                self.children.append(child)
                self._brokers.append((broker, child))
                cluster = cluster.with_broker(msgspec.structs.replace(broker, process=identify(child.pid)))
        finally:
            self._file.save(cluster)
        return cluster

    def _spawn_zookeeper(self, port: int, tls: ZooKeeperTls | None) -> ProcessId:
        directory, members = str(self._file.zookeeper_directory), [EnsembleMember(port, 0, 0)]
        self._zookeeper = ZooKeeperProcess(directory, members, tls=tls)
        self._zookeeper.spawn()
        self.children.append(self._zookeeper.process)
        return identify(self._zookeeper.pid)

    async def _wait_until_serving(self) -> None:
        """Wait until each broker serves and knows all other brokers, so that topics can be placed on all of them."""
        ids = frozenset(broker.node_id for broker, _ in self._brokers)
        await asyncio.gather(*(self._wait_for(broker, child, ids) for broker, child in self._brokers))

    async def _wait_for(
        self, broker: LocalBroker, child: subprocess.Popen[bytes], ids: frozenset[int]
    ) -> None:
        while not (await _knows(broker, ids) and await _serves_http(broker)):
            if child.poll() is not None:
                raise self._failure(broker, f"ended with exit code {child.returncode}")
            if time.monotonic() > self._deadline:
                raise self._failure(broker, f"did not serve within {START_SECONDS:.0f} s")
            await asyncio.sleep(POLL_SECONDS)

    def _failure(self, broker: LocalBroker, reason: str) -> Failure:
        path = self._file.log_path(broker.node_id)
        lines = path.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return Failure(
            f"broker {broker.node_id} did not start: the process {reason}",
            "\n".join([f"The end of {path}:", *(f"  {line}" for line in lines)]),
        )


def where(broker: LocalBroker) -> str:
    return f"broker {broker.node_id} at {broker.address}, metrics and health at {broker.http_address}"


async def _knows(broker: LocalBroker, ids: frozenset[int]) -> bool:
    """Return True if a broker responds and its metadata contains the given brokers."""
    try:
        async with admin_client(broker.address) as client:
            return ids <= set(await client.brokers.ids())
    except (BrokerError, OSError):
        return False


async def _serves_http(broker: LocalBroker) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOCALHOST, broker.http_port)
    except OSError:
        return False
    writer.close()
    return True


def _spawn_broker(file: ClusterFile, cluster: LocalCluster, broker: LocalBroker) -> subprocess.Popen[bytes]:
    directory = file.broker_directory(broker.node_id)
    directory.mkdir(exist_ok=True)
    places = {
        "--data-dir": str(directory / "data"),
        "--node-id": str(broker.node_id),
        "--port": str(broker.port),
        "--http-port": str(broker.http_port),
        "--zookeeper": cluster.zookeeper.hosts,
    }
    settings = [f"{name}={value}" for name, value in cluster.settings.items()]
    if broker.has_tls:
        settings.append(f"listeners=SASL_SSL://{cluster.settings.get('host', LOCALHOST)}:{broker.port}")
    command = [
        *(sys.executable, "-m", "penstock.cli.main", "broker"),
        *(part for option in places.items() for part in option),
        *(part for setting in settings for part in ("--set", setting)),
        *(["--insecure"] if cluster.form.insecure else []),
    ]
    with file.log_path(broker.node_id).open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(),
            start_new_session=True,
        )


def _environment() -> dict[str, str]:
    """Return the environment without settings, so that a broker's settings do not depend on the user's shell."""
    return {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
