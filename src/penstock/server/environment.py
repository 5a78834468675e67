"""Everything a broker takes from the machine, in one bundle: the seams a simulation replaces."""

from __future__ import annotations

import random
from dataclasses import dataclass

from penstock.clock import Clock, SystemClock
from penstock.net.network import Network, TcpNetwork
from penstock.storage.disk import Disk, RealDisk
from penstock.threads import Threads, ThreadPools


@dataclass(frozen=True, slots=True)
class Environment:
    clock: Clock
    random: random.Random
    disk: Disk
    network: Network
    threads: Threads


def real_environment(data_dir: str) -> Environment:
    return Environment(SystemClock(), random.SystemRandom(), RealDisk(data_dir), TcpNetwork(), ThreadPools())
