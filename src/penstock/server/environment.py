"""Everything a broker takes from the machine, in one bundle: the seams a simulation replaces."""

from __future__ import annotations

import os
import random
import socket
from dataclasses import dataclass

from penstock.clock import Clock, SystemClock
from penstock.cluster.coordination import CoordinationStore
from penstock.cluster.embedded import EmbeddedStore
from penstock.config import LOG_DIR, SOCKET_SEND_BUFFER_BYTES, BrokerConfig
from penstock.net.network import Network, TcpNetwork
from penstock.storage.disk import Disk, RealDisk
from penstock.threads import ThreadPools, Threads

STORE_FILE = "metadata.sqlite"


@dataclass(frozen=True, slots=True)
class Environment:
    clock: Clock
    random: random.Random
    disk: Disk
    network: Network
    threads: Threads
    store: CoordinationStore
    machine_id: str = "localhost"
    """The same for every broker on a machine: two of them are not two copies when it dies."""


def real_environment(config: BrokerConfig) -> Environment:
    data_dir = config[LOG_DIR]
    disk = RealDisk(data_dir)
    network = TcpNetwork(config[SOCKET_SEND_BUFFER_BYTES])
    threads = ThreadPools()
    store = EmbeddedStore(os.path.join(data_dir, STORE_FILE), threads)
    return Environment(
        SystemClock(),
        random.SystemRandom(),
        disk,
        network,
        threads,
        store,
        machine_id=socket.gethostname(),
    )
