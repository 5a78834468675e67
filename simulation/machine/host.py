"""The place of one broker on a simulated machine: its disk, its host name, and the process that runs there.

A start makes a process and the `Environment` of a broker. A crash or a power loss ends the process and
leaves the disk as a restart would find it. Several hosts may share a machine (`SimulatedMachine`).
"""

from __future__ import annotations

from random import Random

from penstock.cluster.coordination import CoordinationStore
from penstock.server.environment import Environment
from simulation.machine.disk import SimulatedDisk
from simulation.machine.loop import SimulationLoop
from simulation.machine.machine import SimulatedMachine
from simulation.machine.network import SimulatedNetwork
from simulation.machine.process import SimulatedProcess
from simulation.machine.threads import SimulatedThreads
from simulation.machine.trace import Trace

_PLAIN_SHARE = 0.8


class SimulatedWorld:
    """The state that all machines share: time, the network, the trace, and the seed of all random numbers."""

    def __init__(self, seed: int, loop: SimulationLoop, trace: Trace) -> None:
        self.seed = seed
        self.loop = loop
        self.trace = trace
        self.network = SimulatedNetwork(loop, self.random("network"), trace)

    def random(self, purpose: str) -> Random:
        """Return the random stream of one purpose; a change in one part does not move the streams of others."""
        return self.random_of(self.seed, purpose)

    @staticmethod
    def random_of(seed: int, purpose: str) -> Random:
        return Random(f"{seed}/{purpose}")


class SimulatedHost:
    def __init__(self, world: SimulatedWorld, name: str, machine: SimulatedMachine | None = None) -> None:
        """`machine` is None for a host with a machine of its own."""
        self.name = name
        self.machine = machine or SimulatedMachine(name, world.loop.time)
        self.clock = self.machine.clock
        self.disk = SimulatedDisk(world.random(f"{name}/disk"), world.trace)
        self.process: SimulatedProcess | None = None
        self.threads: SimulatedThreads | None = None
        self._world = world
        self._random = world.random(f"{name}/host")
        self._starts = 0

    def start(self, store: CoordinationStore) -> tuple[SimulatedProcess, Environment]:
        self._starts += 1
        self._world.trace.record("start", self.name, self._starts)
        process = SimulatedProcess(f"{self.name}/{self._starts}")
        self.process = process
        self.disk.on_crash = self._on_fatal_operation
        self.threads = threads = SimulatedThreads(self._world.loop, self._random, self._world.trace)
        network = self._world.network.host(self.name)
        random = self._process_random()
        machine = self.machine
        environment = Environment(
            self.clock,
            random,
            self.disk,
            network,
            threads,
            store,
            machine.name,
            machine.boot_id,
            serves_plain=self._serves_plain(),
        )
        return process, environment

    def _serves_plain(self) -> bool:
        """Whether this process uses the short paths for plain requests; some serve all requests on the general one."""
        return self._world.random(f"{self.name}/paths/{self._starts}").random() < _PLAIN_SHARE

    def pause(self) -> None:
        """Stop the process until it is resumed; its sockets stay open."""
        assert self.process is not None
        self._world.trace.record("pause", self.name)
        self.process.is_paused = True

    def resume(self) -> None:
        if self.process is not None and self.process.is_paused:
            self._world.trace.record("resume", self.name)
            self._world.loop.resume(self.process)

    def crash(self) -> None:
        """End the process at once; the page cache survives."""
        self._world.trace.record("crash", self.name)
        self._end(notice_seconds=0.0)
        self.disk = self.disk.process_crash()

    def power_loss(self) -> None:
        """Switch the machine off: unsynced bytes and names survive by chance, and peers notice after a while.

        The caller does the same to all other hosts of the machine.
        """
        self._world.trace.record("power-loss", self.name)
        self._end(notice_seconds=self._random.uniform(0.0, 2.0))
        self.disk = self.disk.power_loss(self._random)
        self.machine.boot()

    def empty_disk(self) -> None:
        """Replace the disk by an empty one."""
        self._world.trace.record("empty-disk", self.name)
        self.disk = SimulatedDisk(self._random, self._world.trace)

    def restore(self, copy: SimulatedDisk) -> None:
        """Replace the disk by a copy of a data directory, whose files have other inodes."""
        self._world.trace.record("restore", self.name)
        copy = copy.copy()
        copy.faults = self.disk.faults
        self.disk = copy

    def _on_fatal_operation(self) -> None:
        self._world.trace.record("crash-in-operation", self.name)
        self._end(notice_seconds=0.0)

    def _end(self, notice_seconds: float) -> None:
        if self.process is not None:
            self.process.end()
            self.process = None
        self._world.network.crash(self.name, notice_seconds=notice_seconds)

    def _process_random(self) -> Random:
        return self._world.random(f"{self.name}/process/{self._starts}")
