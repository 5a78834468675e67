"""The faults of a broker alone: of network, disk, clock and store while it runs, and the ways in which its
process ends.

Each seed has only some kinds of faults, so that rare combinations occur too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from simulation.faults.machine_faults import Act, MachineFaults, name_of
from simulation.machine.process import SimulatedCrash
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import CLIENT_HOST, Stage

_HOUR_MS = 3_600_000
_CLOCK_JUMPS_MS = (-_HOUR_MS, -1_000, 1_000, 60_000, _HOUR_MS)

Ending = Callable[[], Awaitable[None]]


class Nemesis:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._broker = stage.broker
        self._random = stage.world.random("nemesis")
        self._machine = MachineFaults(stage.world.network, self._random, _CLOCK_JUMPS_MS)
        everything: list[Act] = [
            self._reset_connection,
            self._machine.drop_connection,
            self._sever,
            self._chill,
            self._slow_down,
            self._machine.fill_disk,
            self._machine.fail_sync,
            self._machine.fail_disk,
            self._machine.move_clock,
            self._machine.confuse_store,
        ]
        self._acts = self._random.sample(everything, self._random.randint(0, 5))
        self._endings: list[Ending] = [self._crash, self._lose_power, self._stop, self._crash_in_operation]
        self._weights = [self._random.random() for _ in self._endings]

    @property
    def faults(self) -> frozenset[str]:
        """The kinds of faults that this seed may have."""
        return frozenset(map(name_of, self._acts))

    async def disturb(self) -> None:
        """Let the broker run for a while with a few faults, longer where there are groups."""
        for _ in range(self._random.randint(1, 9 if self._stage.groups else 4)):
            await self._sleep(0.02, 0.4)
            if self._acts and self._broker.is_running:
                await self._break_something()

    async def _break_something(self) -> None:
        fault = self._random.choice(self._acts)
        self._stage.world.trace.record("fault", name_of(fault))
        await fault(self._broker)

    async def end_life(self) -> None:
        """End the process in one of the ways."""
        if self._broker.is_running:
            [end] = self._random.choices(self._endings, self._weights)
            try:
                await end()
            except SimulatedCrash:
                self._finish_off()
            except OSError:
                self._finish_off()  # a stop that meets a failing disk is a crash
        else:
            self._finish_off()
        self._stage.world.network.heal()

    def before_start(self, attempt: int) -> None:
        """End all faults of the machine; now and then arm a crash during recovery."""
        disk = self._broker.host.disk
        disk.faults.heal()
        disk.faults.cold_reads = self._random.choice((0.0, 0.0, 0.2))
        self._broker.store_faults.unknown_applied = self._broker.store_faults.unknown_not_applied = 0.0
        if attempt < 3 and self._random.random() < 0.2:
            disk.faults.crash_after(self._random.randint(1, 120))

    def after_crash_at_start(self) -> None:
        self._finish_off()

    # --- ends of the process

    async def _crash(self) -> None:
        self._broker.crash()

    async def _lose_power(self) -> None:
        self._broker.power_loss()

    async def _stop(self) -> None:
        await self._broker.stop()
        if self._random.random() < 0.5:
            self._broker.lose_power_while_stopped()

    async def _crash_in_operation(self) -> None:
        """Crash within one of the next disk operations."""
        self._broker.host.disk.faults.crash_after(self._random.randint(1, 60))
        process = self._broker.host.process
        assert process is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await process.ended.wait()
        self._finish_off()

    def _finish_off(self) -> None:
        if self._random.random() < 0.5:
            self._broker.crash()
        else:
            self._broker.power_loss()

    # --- faults

    async def _reset_connection(self, broker: BrokerHost) -> None:
        streams = self._stage.world.network.streams(broker.host.name)
        if streams:
            self._random.choice(streams).reset()

    async def _sever(self, broker: BrokerHost) -> None:
        self._stage.world.network.part(CLIENT_HOST, broker.host.name)
        await self._sleep(0.05, 1.0)
        self._stage.world.network.heal()

    async def _chill(self, broker: BrokerHost) -> None:
        broker.host.disk.faults.cold_reads = self._random.choice((0.1, 0.5, 1.0))

    async def _slow_down(self, broker: BrokerHost) -> None:
        threads = broker.host.threads
        assert threads is not None
        await self._machine.slow_down(broker)
        await self._sleep(0.1, 1.0)
        threads.slowness = 1.0

    async def _sleep(self, low: float, high: float) -> None:
        await asyncio.sleep(self._random.uniform(low, high))
