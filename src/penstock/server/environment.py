"""Environment of a broker: its interfaces to the machine, which a simulation replaces."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.clock import Clock, SystemClock
from penstock.cluster.coordination import CoordinationStore
from penstock.cluster.embedded import EmbeddedStore
from penstock.config import (
    LOG_DIR,
    SOCKET_SEND_BUFFER_BYTES,
    ZOOKEEPER_CONNECT,
    ZOOKEEPER_SESSION_TIMEOUT_MS,
    BrokerConfig,
)
from penstock.errors import ConfigError
from penstock.extras import how_to_install
from penstock.gateway.health import Health
from penstock.model import BrokerId
from penstock.net.network import Network, TcpNetwork
from penstock.security.tls_context import read_subject
from penstock.storage.disk import Disk, RealDisk
from penstock.threads import ThreadPools, Threads
from penstock.webhooks.http_caller import WebhookCaller

STORE_FILE = "metadata.sqlite"
BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
SOCKET_SESSION_SECONDS = 30.0
"""Session timeout in seconds at the coordination store that the brokers of one machine share. The end of a process is
noticed at once, so the timeout only matters for a process that hangs.
"""


class SiblingReports(Protocol):
    """Metrics and health of all brokers of this machine, which share one HTTP port."""

    async def start(self, metrics: Callable[[], Awaitable[bytes]], health: Callable[[], Health]) -> None:
        """Make the metrics and the health of this broker available to its siblings."""
        ...

    def close(self) -> None: ...

    async def metrics(self) -> bytes:
        """Return the metrics of all brokers."""
        ...

    def health(self) -> Health:
        """Return the health of all brokers together."""
        ...


@dataclass(frozen=True, slots=True)
class MachineShare:
    """Data that a broker shares with its siblings: the brokers that one `penstock broker --processes` runs on a
    machine.
    """

    siblings: tuple[BrokerId, ...]
    """All brokers of the machine, this one included."""
    reports: SiblingReports
    store_path: str | None = None
    """Path of the socket of the coordination store that the siblings share; None in a cluster with ZooKeeper."""
    is_cordoned: bool = False
    """True if the broker is cordoned: its replicas are being moved away, and it gets no new ones."""


@dataclass(frozen=True, slots=True)
class Environment:
    clock: Clock
    random: random.Random
    disk: Disk
    network: Network
    threads: Threads
    store: CoordinationStore
    machine_id: str = "localhost"
    """Id of the machine. Brokers with the same id lose their page cache together in a power loss."""
    boot_id: str = ""
    """Id of the boot of the machine, which changes with every reboot; empty if unknown."""
    share: MachineShare | None = None
    """Data shared with the other brokers of this machine; None for a broker without siblings."""
    webhook_caller: WebhookCaller | None = None
    """Replacement for the HTTP calls to webhook receivers, for simulations; None for real HTTP."""
    serves_plain: bool = True
    """False if the broker never uses `Api.handle_plain`, which a simulation may choose at random."""


def real_environment(config: BrokerConfig, share: MachineShare | None = None) -> Environment:
    data_dir = config[LOG_DIR]
    disk = RealDisk(data_dir)
    network = TcpNetwork(config[SOCKET_SEND_BUFFER_BYTES])
    threads = ThreadPools()
    boot_id = _read_boot_id()
    return Environment(
        SystemClock(),
        random.SystemRandom(),
        disk,
        network,
        threads,
        _open_store(config, threads, share),
        # Containers have host names of their own, but share the machine's kernel and page cache.
        machine_id=boot_id or socket.gethostname(),
        boot_id=boot_id,
        share=share,
    )


def _read_boot_id() -> str:
    try:
        with open(BOOT_ID_FILE) as file:
            return file.read().strip()
    except OSError:
        return ""


def _open_store(config: BrokerConfig, threads: Threads, share: MachineShare | None) -> CoordinationStore:
    if share is not None and share.store_path is not None:
        from penstock.cluster.socket_store import SocketStore
        from penstock.net.unix_network import UnixNetwork

        return SocketStore(UnixNetwork(), share.store_path, SOCKET_SESSION_SECONDS)
    path = os.path.join(config[LOG_DIR], STORE_FILE)
    hosts = config[ZOOKEEPER_CONNECT]
    if hosts is None:
        return EmbeddedStore(path, threads)
    if os.path.exists(path):
        raise ConfigError(
            f"{path} is the store of a single broker; a broker of a cluster needs a data directory of its own"
        )
    try:
        from penstock.cluster.zookeeper import ZooKeeperStore
        from penstock.cluster.zookeeper_security import zookeeper_security
    except ImportError:
        raise ConfigError(
            f"a cluster needs kazoo, which is not installed; install it with {how_to_install('cluster')}"
        ) from None
    security = zookeeper_security(config, read_subject)
    return ZooKeeperStore(hosts, threads, config[ZOOKEEPER_SESSION_TIMEOUT_MS], security)
