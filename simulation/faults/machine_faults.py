"""Faults of one machine, for a broker alone and for members of a cluster: disk, threads, connections, store, clock."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from simulation.machine.disk_faults import Operation
from simulation.machine.network import SimulatedNetwork
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.store_host import STORE_HOST

_FAILING: tuple[Operation, ...] = ("pwrite", "pread", "rename", "open", "truncate", "remove", "sync_dir")
_SYNCS: tuple[Operation, ...] = ("sync", "sync_all")

Act = Callable[[BrokerHost], Awaitable[None]]
"""One fault of a broker, named as its function."""


def name_of(act: Act) -> str:
    return act.__name__.strip("_")


class MachineFaults:
    def __init__(self, network: SimulatedNetwork, random: Random, clock_jumps_ms: Sequence[int]) -> None:
        self._network = network
        self._random = random
        self._clock_jumps_ms = clock_jumps_ms

    async def drop_connection(self, broker: BrokerHost) -> None:
        """Lose every packet of one connection from now on. Connections to a store process are Unix sockets,
        which lose none.
        """
        streams = [
            stream for stream in self._network.streams(broker.host.name) if STORE_HOST not in stream.hosts
        ]
        if streams:
            self._random.choice(streams).drop()

    async def slow_down(self, broker: BrokerHost) -> None:
        """Make the work of all threads take 10 or 100 times as long."""
        if broker.host.threads is not None:
            broker.host.threads.slowness = self._random.choice((10.0, 100.0))

    async def fill_disk(self, broker: BrokerHost) -> None:
        """Leave little space on the disk for up to 1.5 seconds."""
        faults = broker.host.disk.faults
        faults.capacity_bytes = broker.host.disk.used_bytes() + self._random.randrange(6_000)
        await asyncio.sleep(self._random.uniform(0.2, 1.5))
        faults.heal()

    async def fail_sync(self, broker: BrokerHost) -> None:
        """Have one of the next fsyncs fail."""
        for operation in _SYNCS:
            broker.host.disk.faults.fail(operation, errno.EIO, skip=self._random.randrange(3))

    async def fail_disk(self, broker: BrokerHost) -> None:
        """Have one of the next operations of one kind fail."""
        operation = self._random.choice(_FAILING)
        broker.host.disk.faults.fail(operation, errno.EIO, skip=self._random.randrange(6))

    async def confuse_store(self, broker: BrokerHost) -> None:
        """Leave the outcome of some writes to the coordination store unknown."""
        faults = broker.store_faults
        faults.unknown_applied = faults.unknown_not_applied = self._random.choice((0.0, 0.3))

    async def move_clock(self, broker: BrokerHost) -> None:
        """Let the wall clock jump."""
        broker.host.clock.jump(self._random.choice(self._clock_jumps_ms))
