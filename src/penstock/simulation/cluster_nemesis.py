"""The one who breaks a cluster: brokers die, stop, freeze, lose each other, the store, their disks and their clocks.

Each seed breaks only some kinds of things, and never more at once than what was promised can survive (`Survival`).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence

from penstock.cluster import znodes
from penstock.simulation.cluster_data_faults import DataFaults
from penstock.simulation.cluster_member import ClusterMember
from penstock.simulation.cluster_stage import ClusterStage
from penstock.simulation.cluster_survival import Survival
from penstock.simulation.cluster_traits import (
    CHANGED_BYTES,
    CLOCK_JUMPS,
    CLONED,
    COMPACTION,
    DERIVED_FILES,
    LOST_FILES,
    LOST_LEADER,
    ROLLED_BACK,
    SHARED_MACHINE,
    STALE_STORE,
)
from penstock.simulation.faults import Operation
from penstock.simulation.partition_history import Place
from penstock.simulation.process import SimulatedCrash
from penstock.simulation.replicated_topic import ReplicatedTopic
from penstock.simulation.stage import CLIENT_HOST

_FAILING: tuple[Operation, ...] = ("pwrite", "pread", "rename", "open", "truncate", "remove", "sync_dir")
_PARTING = frozenset({"_pause", "_keep_from_store", "_part_two", "_isolate", "_expire", "_lose_last"})
"""What may leave another member alone in an in-sync set."""
_TROUBLING = frozenset(
    {
        "_keep_from_store",
        "_isolate",
        "_slow_down",
        "_fill_disk",
        "_fail_sync",
        "_fail_disk",
        "_confuse_store",
        "_leave_one",
        "_leave_machine",
        "_lose_last",
        "_pause",
        "_crash_in_operation",
    }
)
"""What may keep a leader from committing for as long as it lasts."""
_COMMIT_SECONDS = 0.5
"""A leader that is left alone is given this long to commit something."""
_DEATHS = frozenset({"crash", "lose_power", "crash_in_operation", "crash_all"})

Act = Callable[[ClusterMember], Awaitable[None]]


class ClusterNemesis:
    def __init__(
        self,
        stage: ClusterStage,
        durability: str,
        session_seconds: float,
        committed: Callable[[Place], int],
    ) -> None:
        """`committed` tells the greatest high watermark that a leader of a partition ever had."""
        self._stage = stage
        self._network = stage.world.network
        self._random = stage.world.random("nemesis")
        self._losses = stage.world.random("nemesis/losses")
        self._durability = durability
        self._committed = committed
        self.survival = Survival(stage, durability)
        self._session_seconds = session_seconds
        self.is_raging = True
        self.troubled: set[int] = set()
        """The brokers with a fault that may keep a leader from committing."""
        self._hours: dict[str, int] = {}
        """How far the clock of each machine is off."""
        everything: list[Act] = [
            self._crash,
            self._lose_power,
            self._stop,
            self._crash_in_operation,
            self._crash_all,
            self._leave_one,
            self._leave_one,
            self._empty_disk,
            self._pause,
            self._keep_from_store,
            self._part_two,
            self._isolate,
            self._expire,
            self._reset_connections,
            self._drop_connection,
            self._slow_down,
            self._fill_disk,
            self._fail_sync,
            self._fail_disk,
            self._move_clock,
            self._confuse_store,
        ]
        self._acts = self._random.sample(everything, self._random.randint(1, 6))
        if self._random.random() < 0.05:
            self._acts = []  # healthy clusters keep their promises too
        added = self._trait_acts()
        self._acts = self._acts + added

    def _trait_acts(self) -> list[Act]:
        """What the traits of the seed add, each often enough that it happens."""
        self.data = data = DataFaults(
            self._stage, self.survival, self._mend, self._committed, self._session_seconds
        )
        acts: dict[str, Act] = {
            ROLLED_BACK: data.roll_back,
            CLONED: data.clone,
            LOST_FILES: data.lose_file,
            CHANGED_BYTES: data.change_byte,
            DERIVED_FILES: data.damage_derived,
            COMPACTION: data.replace_disk,
            SHARED_MACHINE: self._leave_machine,
            CLOCK_JUMPS: self._jump_clock,
            STALE_STORE: self._move_session,
            LOST_LEADER: self._lose_last,
        }
        added = [act for trait, act in acts.items() if trait in self._stage.traits]
        if self._stage.traits >= {CLOCK_JUMPS} and self._losses.random() < 0.5:
            self._acts = []  # clocks alone may neither slow a commit nor drop a follower
        return added * max(1, len(self._acts))

    @property
    def faults(self) -> frozenset[str]:
        """What this seed may break."""
        return frozenset(act.__name__.strip("_") for act in self._acts)

    async def rage(self) -> None:
        for _ in range(self._random.randint(2, 6)):
            await self._sleep(0.05, 0.8)
            if self._acts:
                act, member = self._random.choice(self._acts), self._choose()
                if act.__name__ in _PARTING and self.survival.is_anybody_suspect():
                    continue
                self._stage.world.trace.record("fault", act.__name__.strip("_"), member.host.name)
                if act.__name__ in _TROUBLING:
                    self.troubled.add(member.node_id)
                await act(member)
                if self._random.random() < 0.3:
                    self._mend()

    def strike(self, node_id: int) -> None:
        """Kill this one now, in a seed where brokers die."""
        member = self._stage.member(node_id)
        if (
            self.is_raging
            and member.is_running
            and self.faults & _DEATHS
            and not self.survival.is_anybody_suspect()
        ):
            self._stage.world.trace.record("fault", "strike", member.host.name)
            self._keep_down(member)
            self._end(member)

    def make_peace(self) -> None:
        self.is_raging = False
        self._mend()
        self._set_clocks_right()
        for member in self._stage.members:
            member.store_faults.max_lag_s = 0.0

    def _mend(self) -> None:
        """Nothing is broken any more; who is down may start."""
        self._network.heal()
        self.troubled.clear()
        for member in self._stage.members:
            member.resume()
            member.let_near("severed")
            member.let_near("moving")
            member.host.disk.faults.heal()
            member.host.disk.faults.cold_reads = 0.0
            member.store_faults.unknown_applied = member.store_faults.unknown_not_applied = 0.0
            member.down_until = 0.0
            if member.host.threads is not None:
                member.host.threads.slowness = 1.0

    def _choose(self) -> ClusterMember:
        """Often one that leads something."""
        leaders = {state.leader for state in self._stage.history.now.values()}
        leading = [member for member in self._stage.members if member.node_id in leaders]
        return self._random.choice(
            leading if leading and self._random.random() < 0.7 else self._stage.members
        )

    # --- dying

    async def _crash(self, member: ClusterMember) -> None:
        self._keep_down(member)
        self._end(member)

    async def _lose_power(self, member: ClusterMember) -> None:
        self._keep_down(member)
        if self.survival.may_lose_power(member):
            member.power_loss()
        else:
            self._end(member)

    async def _stop(self, member: ClusterMember) -> None:
        self._keep_down(member)
        try:
            await member.stop()
        except (SimulatedCrash, OSError):
            self._end(member)  # a stop that meets a broken disk is a crash

    async def _crash_in_operation(self, member: ClusterMember) -> None:
        if self.survival.may_crash(member):
            self._keep_down(member)
            member.host.disk.faults.crash_after(self._random.randint(1, 60))

    async def _crash_all(self, _: ClusterMember) -> None:
        """Within a tenth of a second, and back in any order."""
        for member in self._random.sample(list(self._stage.members), len(self._stage.members)):
            self._keep_down(member)
            if self._durability == "fsync" and self._random.random() < 0.7:
                member.power_loss()
            else:
                self._end(member)
            await self._sleep(0.0, 0.03)

    async def _leave_one(self, _: ClusterMember) -> None:
        """A leader remains alone in sync and takes writes; then it loses its power too."""
        led = [
            (place, state)
            for place, state in self._stage.history.now.items()
            if state.leader in state.isr and self._takes_writes_alone(place[0])
        ]
        if not led:
            return
        place, state = self._random.choice(led)
        await self._leave(place, state, (self._stage.member(state.leader),))

    async def _leave_machine(self, _: ClusterMember) -> None:
        """The brokers of one machine remain in sync and take writes; then it loses its power."""
        shared = [
            (place, state)
            for place, state in self._stage.history.now.items()
            if state.leader in state.isr
            and len(self._housemates(state)) > 1
            and place[0] in self._stage.topics
        ]
        if shared:
            place, state = self._random.choice(shared)
            await self._leave(place, state, self._housemates(state))

    def _housemates(self, state: znodes.PartitionNode) -> list[ClusterMember]:
        """The members of the in-sync set on the machine of the leader."""
        leader = self._stage.member(state.leader)
        return [member for member in leader.housemates if member.node_id in state.isr]

    async def _leave(
        self, place: Place, state: znodes.PartitionNode, staying: Sequence[ClusterMember]
    ) -> None:
        leader = self._stage.member(state.leader)
        for other in map(self._stage.member, state.isr):
            if other not in staying:
                self._keep_down(other)
                other.down_until += 2 * self._session_seconds
                self._end(other)
        if self._random.random() < 0.6:
            await self._slow_down(leader)
        await self._until(lambda: self._is_left_to(staying, place))
        await self._until_committed(place)
        await self._sleep(0.0, self._random.choice((0.01, 0.03, 0.1)))
        if self._is_left_to(staying, place) and self.survival.may_lose_power(leader):
            self._stage.world.trace.record("fault", "last power", leader.host.name)
            leader.power_loss()

    async def _until_committed(self, place: Place) -> None:
        """Wait for the next commit, so that the records of a power loss right after it were promised to be durable."""
        committed = self._committed(place)
        deadline = self._stage.world.loop.time() + _COMMIT_SECONDS
        while self._stage.world.loop.time() < deadline and self._committed(place) == committed:
            await asyncio.sleep(0.01)

    async def _lose_last(self, _: ClusterMember) -> None:
        """A leader under min ISR remains alone in sync, beside eligible leaders; then its data is lost."""
        led = [
            (place, state)
            for place, state in self._stage.history.now.items()
            if state.leader in state.isr and len(state.isr) > 1 and self._has_eligible_when_alone(place[0])
        ]
        if not led:
            return
        place, state = self._losses.choice(led)
        leader = self._stage.member(state.leader)
        copy, committed = await self.data.copy(leader), self._committed(place)
        if not await self._until(lambda: leader.is_serving and self._committed(place) > committed):
            return
        others = [
            member
            for member in self._stage.members
            if self._is_in_sync(member, place) and member is not leader
        ]
        for other in others:
            other.down_until = self._stage.world.loop.time() + 3 * self._session_seconds
            self._end(other)
        if await self._until(lambda: self._is_left_to((leader,), place)):
            self.data.lose_directory(leader, copy)
        for other in others:
            other.down_until = 0.0

    def _is_in_sync(self, member: ClusterMember, place: Place) -> bool:
        state = self._stage.history.now.get(place)
        return state is not None and member.node_id in state.isr

    def _has_eligible_when_alone(self, topic: str) -> bool:
        model = self._stage.topics.get(topic)
        return isinstance(model, ReplicatedTopic) and model.min_insync_replicas > 1

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for up to two session timeouts; return whether the condition holds."""
        deadline = self._stage.world.loop.time() + 2 * self._session_seconds
        while self._stage.world.loop.time() < deadline and not condition():
            await asyncio.sleep(0.01)
        return condition()

    def _takes_writes_alone(self, topic: str) -> bool:
        model = self._stage.topics.get(topic)
        return isinstance(model, ReplicatedTopic) and model.min_insync_replicas == 1

    def _is_left_to(self, members: Sequence[ClusterMember], place: Place) -> bool:
        """Whether nobody else is in sync."""
        state = self._stage.history.now.get(place)
        return state is not None and set(state.isr) <= {member.node_id for member in members}

    async def _empty_disk(self, member: ClusterMember) -> None:
        """Somebody gives it a new one, while others have everything."""
        if self.survival.may_lose_copy(member):
            self._keep_down(member)
            if len(member.housemates) == 1:
                member.power_loss()
            else:
                member.crash()
            member.empty_disk()

    def _end(self, member: ClusterMember) -> None:
        if member.is_running and self.survival.may_crash(member):
            member.crash()

    def _keep_down(self, member: ClusterMember) -> None:
        longest = self._random.choice((0.1, 1.0, 2 * self._session_seconds))
        member.down_until = self._stage.world.loop.time() + self._random.uniform(0.0, longest)

    # --- out of reach

    async def _pause(self, member: ClusterMember) -> None:
        if member.is_running and not member.is_paused:
            member.pause()
            await self._sleep(0.05, 2 * self._session_seconds)
            if self._random.random() < 0.8:
                member.resume()

    async def _keep_from_store(self, member: ClusterMember) -> None:
        member.keep_away("severed")
        await self._sleep(0.05, 2 * self._session_seconds)
        if self._random.random() < 0.8:
            member.let_near("severed")

    async def _part_two(self, member: ClusterMember) -> None:
        other = self._random.choice([each for each in self._stage.members if each is not member])
        if self._random.random() < 0.5:
            self._network.part(member.host.name, other.host.name)
        else:
            self._network.sever(member.host.name, other.host.name)
        await self._sleep(0.05, 2 * self._session_seconds)

    async def _isolate(self, member: ClusterMember) -> None:
        """From its peers, perhaps one way only, and perhaps from the store and from clients."""
        is_one_way = self._random.random() < 0.3
        for other in self._stage.members:
            if other is not member:
                self._network.sever(member.host.name, other.host.name)
                if not is_one_way:
                    self._network.sever(other.host.name, member.host.name)
        if self._random.random() < 0.5:
            member.keep_away("severed")
        if self._random.random() < 0.5:
            self._network.part(member.host.name, CLIENT_HOST)
        await self._sleep(0.05, 2 * self._session_seconds)
        if self._random.random() < 0.8:
            self._network.heal(member.host.name)
            member.let_near("severed")

    async def _expire(self, member: ClusterMember) -> None:
        member.expire_session()

    async def _reset_connections(self, member: ClusterMember) -> None:
        for stream in self._network.streams(member.host.name):
            if self._random.random() < 0.5:
                stream.reset()

    async def _drop_connection(self, member: ClusterMember) -> None:
        streams = self._network.streams(member.host.name)
        if streams:
            self._random.choice(streams).drop()

    # --- the machine

    async def _slow_down(self, member: ClusterMember) -> None:
        if member.host.threads is not None:
            member.host.threads.slowness = self._random.choice((10.0, 100.0))

    async def _fill_disk(self, member: ClusterMember) -> None:
        faults = member.host.disk.faults
        faults.capacity_bytes = member.host.disk.used_bytes() + self._random.randrange(6_000)
        await self._sleep(0.2, 1.5)
        faults.heal()

    async def _fail_sync(self, member: ClusterMember) -> None:
        if self.survival.may_lose_power(member) and not self.survival.is_anybody_suspect():
            member.is_suspect = True
            syncs: tuple[Operation, ...] = ("sync", "sync_all")
            for operation in syncs:
                member.host.disk.faults.fail(operation, errno.EIO, skip=self._random.randrange(3))

    async def _fail_disk(self, member: ClusterMember) -> None:
        operation = self._random.choice(_FAILING)
        member.host.disk.faults.fail(operation, errno.EIO, skip=self._random.randrange(6))

    async def _move_clock(self, member: ClusterMember) -> None:
        member.host.clock.jump(self._random.choice((-60_000, -1_000, 1_000, 60_000)))

    async def _jump_clock(self, member: ClusterMember) -> None:
        """By hours; perhaps a follower hangs meanwhile, though its session lives."""
        hours = self._losses.choice((-30, -5, -1, 1, 5, 30))
        self._hours[member.host.machine.name] = self._hours.get(member.host.machine.name, 0) + hours
        member.host.clock.jump(hours * 3_600_000)
        if self._losses.random() < 0.5 and self.faults != {CLOCK_JUMPS}:
            other = self._losses.choice([each for each in self._stage.members if each is not member])
            self._network.part(member.host.name, other.host.name)
            await asyncio.sleep(self._losses.uniform(0.5, 10.0))
            self._network.heal(member.host.name)

    def _set_clocks_right(self) -> None:
        for member in self._stage.members:
            hours = self._hours.pop(member.host.machine.name, 0)
            member.host.clock.jump(-hours * 3_600_000)

    async def _move_session(self, member: ClusterMember) -> None:
        """The connection to the store ends, and the next one leads to another server."""
        member.keep_away("moving")
        await asyncio.sleep(self._losses.uniform(0.0, self._session_seconds / 2))
        member.let_near("moving")

    async def _confuse_store(self, member: ClusterMember) -> None:
        faults = member.store_faults
        faults.unknown_applied = faults.unknown_not_applied = self._random.choice((0.0, 0.3))

    async def _sleep(self, low: float, high: float) -> None:
        await asyncio.sleep(self._random.uniform(low, high))
