"""Faults of data directories: directories restored to an earlier copy, cloned directories, lost and damaged
files.

Each fault costs one replica of a partition. Another one is complete (`Survival`), and is not taken before
the cluster knows of the loss or the replica is repaired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.errors import PenstockError
from simulation.faults import file_damage
from simulation.faults.file_damage import ClosedSegment, Damage
from simulation.faults.survival import Survival
from simulation.machine.disk import SimulatedDisk
from simulation.machine.process import SimulatedCrash
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import Place
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage

_START_SECONDS = 10.0
_PEACE_SECONDS = 60.0


class DataFaults:
    def __init__(
        self,
        stage: Stage,
        survival: Survival,
        mend: Callable[[], None],
        committed: Callable[[Place], int],
        session_seconds: float,
    ) -> None:
        """`committed` tells the greatest high watermark that a leader of a partition ever had."""
        self._stage = stage
        self._survival = survival
        self._mend = mend
        self._committed = committed
        self._session_seconds = session_seconds
        self._random = stage.world.random("nemesis/data")
        self._damages: list[Damage] = []
        survival.damaged_places = self.damaged_places

    def damaged_places(self) -> dict[Place, BrokerHost]:
        """Return the partitions with a damaged replica, and the broker that has it."""
        self._damages = [damage for damage in self._damages if not damage.is_over(self._stage)]
        return {damage.segment.place: damage.member for damage in self._damages}

    def unrepaired(self) -> str:
        return ", ".join(f"{damage.segment.path} of {damage.member.host.name}" for damage in self._damages)

    # --- copies of directories

    async def roll_back(self, member: BrokerHost) -> None:
        """Restore a data directory to a copy that was taken earlier from the running or the stopped broker."""
        if not member.is_running or member.is_suspect:
            return
        copy = await self.copy(member)
        await self._until_in_sync(member)
        await self._sleep(0.1, 1.5)
        if not self._may_lose_copy(member):
            return
        if self._random.random() < 0.3:
            await self._stop(member)
        elif member.is_running:
            member.crash()
        member.restore(copy)
        now = self._stage.world.loop.time()
        member.down_until = now + self._random.choice((0.0, 0.0, 1.0))
        if self._random.random() < 0.5:
            self._let_start_first(member)
            await self._until_serving(member)

    async def copy(self, member: BrokerHost) -> SimulatedDisk:
        """Copy the data directory of a running broker, or of one that is stopped for it and may start again."""
        if self._random.random() < 0.4 and member.is_running:
            await self._stop(member)
        copy = member.host.disk.copy()
        member.down_until = 0.0
        return copy

    def lose_directory(self, member: BrokerHost, copy: SimulatedDisk) -> None:
        """End the process, and empty the data directory or restore it to the copy, if other replicas are
        complete.
        """
        if not self._may_lose_copy(member):
            return
        if member.is_running:
            member.crash()
        if self._random.random() < 0.3:
            member.empty_disk()
        else:
            member.restore(copy)
        member.down_until = self._stage.world.loop.time() + self._random.choice((0.0, 0.0, 1.0))

    def _let_start_first(self, member: BrokerHost) -> None:
        """Crash all other brokers, and start them later than this one."""
        for other in self._stage.members:
            if other is not member and other.is_running and self._survival.may_crash(other):
                other.down_until = member.down_until + self._random.uniform(0.5, 2 * self._session_seconds)
                other.crash()

    async def clone(self, member: BrokerHost) -> None:
        """Run a second process on a copy of the directory, beside the first process or in its place, and end
        it for good.
        """
        if not member.is_running or member.is_suspect or not self._may_lose_copy(member):
            return
        copy = member.host.disk.copy()
        if self._random.random() < 0.7:
            member.crash()
            member.down_until = self._stage.world.loop.time() + _PEACE_SECONDS
        await self._sleep(0.0, 1.0)
        if not self._may_lose_copy(member):
            member.down_until = 0.0
            return
        machine = member.host.machine if self._random.random() < 0.5 else None
        clone = member.clone(copy, machine)
        member.is_suspect = True
        if await self._run(clone):
            member.is_suspect = True
            await self._until_copied(member)
        elif member.is_running:
            member.is_suspect = False  # the clone was refused
        if clone.is_running:
            clone.crash()
        member.down_until = 0.0
        if clone.problems:
            raise InvariantViolated("traceback", f"{clone.host.name}: " + "\n".join(clone.problems))

    async def _run(self, clone: BrokerHost) -> bool:
        """Start the clone and let it run for a while; return whether it was let into the cluster."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                await clone.start()
        except (PenstockError, OSError, SimulatedCrash, TimeoutError) as error:
            self._stage.world.trace.record("fault", "refused", clone.host.name, repr(error))
            return False
        deadline = self._stage.world.loop.time() + self._random.uniform(0.1, 3.0)
        while self._stage.world.loop.time() < deadline and clone.is_serving:
            await asyncio.sleep(0.02)
        return True

    async def _until_copied(self, member: BrokerHost) -> None:
        """Wait until other replicas have what the clone has: it may be alone in sync, and ends for good."""
        deadline = self._stage.world.loop.time() + _PEACE_SECONDS
        while not self._survival.may_lose_copy(member) and self._stage.world.loop.time() < deadline:
            self._mend()
            member.down_until = deadline
            await asyncio.sleep(0.05)

    async def replace_disk(self, member: BrokerHost) -> None:
        """Replace the disk of a broker by an empty one; when it is in sync again, crash all brokers and start
        it first.
        """
        if not member.is_running or member.is_suspect or not self._may_lose_copy(member):
            return
        member.crash()
        member.empty_disk()
        member.down_until = 0.0
        await self._until_in_sync(member)
        await self._sleep(0.0, 0.5)
        if self._survival.may_crash(member) and member.is_running:
            member.down_until = self._stage.world.loop.time() + 0.3
            self._let_start_first(member)
            await self._sleep(0.0, self._random.choice((0.0, 0.2)))
            if member.is_running:
                member.crash()

    async def _until_serving(self, member: BrokerHost) -> None:
        """Keep all other brokers down until this one serves, for up to five seconds."""
        deadline = self._stage.world.loop.time() + 5.0
        while self._stage.world.loop.time() < deadline and not member.is_serving:
            for other in self._stage.members:
                if other is not member:
                    other.down_until = max(other.down_until, self._stage.world.loop.time() + 0.5)
            await asyncio.sleep(0.02)

    async def _until_in_sync(self, member: BrokerHost) -> None:
        """Wait until a restarted broker is in sync again, for a while: only then its loss of data matters."""
        deadline = self._stage.world.loop.time() + 2 * self._session_seconds + 2.0
        while self._stage.world.loop.time() < deadline and not self._is_in_sync(member):
            await asyncio.sleep(0.02)

    def _is_in_sync(self, member: BrokerHost) -> bool:
        """Whether the broker is in the in-sync set of each of its partitions."""
        return member.is_serving and all(
            member.node_id in state.isr
            for state in self._stage.history.now.values()
            if member.node_id in state.replicas
        )

    # --- files

    async def lose_file(self, member: BrokerHost) -> None:
        """Delete, shorten or swap the file of a closed segment while its broker is down."""
        if not self._vulnerable(member) or not await self._end(member):
            return
        segments = self._vulnerable(member)
        if segments:
            segment = self._random.choice(segments)
            others = [other for other in segments if other is not segment]
            self._note(member, *file_damage.lose(self._random, member.host.disk, segment, others))

    async def change_byte(self, member: BrokerHost) -> None:
        """Change a byte of a closed segment, while its broker runs or is down."""
        if self._random.random() < 0.5 and not await self._end(member):
            return
        segments = self._vulnerable(member)
        if segments:
            segment = self._random.choice(segments)
            file_damage.change_byte(self._random, member.host.disk, segment)
            self._note(member, segment)

    async def damage_derived(self, member: BrokerHost) -> None:
        """Delete or change indexes, snapshots and checkpoints while their broker is down."""
        if not self._may_lose_copy(member) or not await self._end(member):
            return
        member.is_suspect = True
        for _ in range(self._random.randint(1, 3)):
            files = file_damage.derived_files(self._stage, member.host.disk)
            if files:
                file_damage.spoil(self._random, member.host.disk, self._random.choice(files))

    def _vulnerable(self, member: BrokerHost) -> list[ClosedSegment]:
        """Return the closed segments that may be damaged: another replica of the partition is complete."""
        if not self._may_lose_copy(member):
            return []
        found = file_damage.closed_segments(self._stage, member.host.disk, self._committed)
        places = self.damaged_places()
        return [
            segment
            for segment in found
            if places.get(segment.place, member) is member and self._stays(segment.place)
        ]

    def _stays(self, place: Place) -> bool:
        """Whether no client deletes or reassigns the partition, so that its replica must be repaired."""
        state = self._stage.history.now.get(place)
        return self._stage.living(place[0]) is not None and state is not None and not state.target

    def _note(self, member: BrokerHost, *segments: ClosedSegment) -> None:
        self._damages += [Damage(member, segment) for segment in segments]

    def _may_lose_copy(self, member: BrokerHost) -> bool:
        suspects = [other for other in self._stage.members if other.is_suspect and other is not member]
        return not suspects and self._survival.may_lose_copy(member)

    # --- ends

    async def _end(self, member: BrokerHost) -> bool:
        """End the process by a crash or in order; return whether it has ended."""
        if member.is_suspect:
            return False
        member.down_until = self._stage.world.loop.time() + self._random.uniform(0.0, 1.0)
        if not member.is_running:
            return True
        if self._random.random() < 0.5:
            await self._stop(member)
        else:
            member.crash()
        return not member.is_running

    async def _stop(self, member: BrokerHost) -> None:
        member.down_until = self._stage.world.loop.time() + 0.5
        try:
            await member.stop()
        except (SimulatedCrash, OSError):
            if member.is_running:
                member.crash()

    async def _sleep(self, low: float, high: float) -> None:
        await asyncio.sleep(self._random.uniform(low, high))
