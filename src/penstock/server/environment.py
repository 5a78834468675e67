"""Environment of a broker: all that it takes from the machine, and that a simulation replaces."""

from __future__ import annotations

import os
import random
import socket
from dataclasses import dataclass

from penstock.clock import Clock, SystemClock
from penstock.cluster.coordination import CoordinationStore
from penstock.cluster.embedded import EmbeddedStore
from penstock.config import (
    LOG_DIR,
    SOCKET_SEND_BUFFER_BYTES,
    ZOOKEEPER_CONNECT,
    ZOOKEEPER_DIGEST,
    ZOOKEEPER_SESSION_TIMEOUT_MS,
    BrokerConfig,
)
from penstock.errors import ConfigError
from penstock.extras import how_to_install
from penstock.net.network import Network, TcpNetwork
from penstock.storage.disk import Disk, RealDisk
from penstock.threads import ThreadPools, Threads

STORE_FILE = "metadata.sqlite"
BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class Environment:
    clock: Clock
    random: random.Random
    disk: Disk
    network: Network
    threads: Threads
    store: CoordinationStore
    machine_id: str = "localhost"
    """Id of the machine. Brokers with the same id lose the contents of their memory together in a power loss."""
    boot_id: str = ""
    """Id of the machine's boot, new after every start of the machine; empty where it is not known."""


def real_environment(config: BrokerConfig) -> Environment:
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
        _open_store(config, threads),
        # Containers have host names of their own, but share the machine's kernel and page cache.
        machine_id=boot_id or socket.gethostname(),
        boot_id=boot_id,
    )


def _read_boot_id() -> str:
    try:
        with open(BOOT_ID_FILE) as file:
            return file.read().strip()
    except OSError:
        return ""


def _open_store(config: BrokerConfig, threads: Threads) -> CoordinationStore:
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
    except ImportError:
        raise ConfigError(
            f"a cluster needs kazoo, which is not installed; install it with {how_to_install('cluster')}"
        ) from None
    return ZooKeeperStore(hosts, threads, config[ZOOKEEPER_SESSION_TIMEOUT_MS], config[ZOOKEEPER_DIGEST])
