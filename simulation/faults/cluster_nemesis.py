"""The faults of a cluster: brokers crash, stop and pause, and lose peers, the store, disks and clocks.

Each seed has only some kinds of faults, and never more at once than the cluster promises to survive
(`Survival`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from simulation.faults.cluster_traits import (
    CHANGED_BYTES,
    CLOCK_JUMPS,
    CLONED,
    COMPACTION,
    DERIVED_FILES,
    LOST_FILES,
    LOST_LEADER,
    ROLLED_BACK,
    SHARED_MACHINE,
    SOCKET_STORE,
    STALE_STORE,
)
from simulation.faults.data_faults import DataFaults
from simulation.faults.machine_faults import Act, MachineFaults, name_of
from simulation.faults.outages import Outages
from simulation.faults.sole_leader_faults import SoleLeaderFaults
from simulation.faults.survival import Survival
from simulation.machine.process import SimulatedCrash
from simulation.models.partition_history import Place
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import CLIENT_HOST, Stage

_PARTING = frozenset(
    {"pause", "keep_from_store", "part_two", "isolate", "expire", "lose_last", "disturb_store"}
)
"""Faults that may leave one member alone in an in-sync set."""
_TROUBLING = frozenset(
    {
        "keep_from_store",
        "isolate",
        "slow_down",
        "fill_disk",
        "fail_sync",
        "fail_disk",
        "confuse_store",
        "leave_one",
        "leave_machine",
        "lose_last",
        "pause",
        "crash_in_operation",
    }
)
"""Faults that may keep a leader from committing while they last."""
_CLOCK_JUMPS_MS = (-60_000, -1_000, 1_000, 60_000)
_DEATHS = frozenset({"crash", "lose_power", "crash_in_operation", "crash_all"})


class ClusterNemesis:
    def __init__(
        self,
        stage: Stage,
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
        self.survival = Survival(stage, durability)
        self._session_seconds = session_seconds
        self._machine = MachineFaults(stage.world.network, self._random, _CLOCK_JUMPS_MS)
        self._outages = Outages(stage, self.survival, self._random, session_seconds)
        self.data = DataFaults(stage, self.survival, self._mend, committed, session_seconds)
        self._sole = SoleLeaderFaults(
            stage, self._outages, self._machine, self.data, committed, self._random, self._losses
        )
        self.is_injecting = True
        self.troubled: set[int] = set()
        """The brokers with a fault that may keep a leader from committing."""
        self._hours: dict[str, int] = {}
        """The error of each machine's wall clock in hours."""
        everything = self._ordinary_acts()
        self._acts = self._random.sample(everything, self._random.randint(1, 6))
        if self._random.random() < 0.05:
            self._acts = []  # a cluster without faults keeps its promises too
        added = self._trait_acts()
        self._acts = self._acts + added

    def _ordinary_acts(self) -> list[Act]:
        """Return the faults that any seed may have; one that is listed twice is drawn more often."""
        return [
            self._crash,
            self._lose_power,
            self._stop,
            self._crash_in_operation,
            self._crash_all,
            self._sole.leave_one,
            self._sole.leave_one,
            self._empty_disk,
            self._pause,
            self._keep_from_store,
            self._part_two,
            self._isolate,
            self._expire,
            self._reset_connections,
            self._machine.drop_connection,
            self._machine.slow_down,
            self._machine.fill_disk,
            self._fail_sync,
            self._machine.fail_disk,
            self._machine.move_clock,
            self._machine.confuse_store,
        ]

    def _trait_acts(self) -> list[Act]:
        """Return the faults that the traits of the seed add, each often enough to happen."""
        data = self.data
        acts: dict[str, Act] = {
            ROLLED_BACK: data.roll_back,
            CLONED: data.clone,
            LOST_FILES: data.lose_file,
            CHANGED_BYTES: data.change_byte,
            DERIVED_FILES: data.damage_derived,
            COMPACTION: data.replace_disk,
            SHARED_MACHINE: self._sole.leave_machine,
            CLOCK_JUMPS: self._jump_clock,
            STALE_STORE: self._move_session,
            LOST_LEADER: self._sole.lose_last,
            SOCKET_STORE: self._disturb_store,
        }
        added = [act for trait, act in acts.items() if trait in self._stage.traits]
        if self._stage.traits >= {CLOCK_JUMPS} and self._losses.random() < 0.5:
            self._acts = []  # clock jumps alone may neither delay a commit nor drop a follower
        return added * max(1, len(self._acts))

    @property
    def faults(self) -> frozenset[str]:
        """The kinds of faults that this seed may have."""
        return frozenset(map(name_of, self._acts))

    async def inject_faults(self) -> None:
        for _ in range(self._random.randint(2, 6)):
            await self._sleep(0.05, 0.8)
            if self._acts:
                act, member = self._random.choice(self._acts), self._choose()
                name = name_of(act)
                if name in _PARTING and self.survival.is_any_suspect():
                    continue
                self._stage.world.trace.record("fault", name, member.host.name)
                if name in _TROUBLING:
                    self.troubled.add(member.node_id)
                await act(member)
                if self._random.random() < 0.3:
                    self._mend()

    def strike(self, node_id: int) -> None:
        """Crash this broker now, in a seed whose faults include deaths."""
        member = self._stage.member(node_id)
        if (
            self.is_injecting
            and member.is_running
            and self.faults & _DEATHS
            and not self.survival.is_any_suspect()
        ):
            self._stage.world.trace.record("fault", "strike", member.host.name)
            self._outages.keep_down(member)
            self._outages.end(member)

    def end_faults(self) -> None:
        self.is_injecting = False
        self._mend()
        self._set_clocks_right()
        for member in self._stage.members:
            member.store_faults.max_lag_s = 0.0

    def _mend(self) -> None:
        """End all faults, and let brokers that are down start."""
        self._network.heal()
        self.troubled.clear()
        if self._stage.store_host is not None:
            self._stage.store_host.resume()
            self._stage.store_host.down_until = 0.0
        for member in self._stage.members:
            member.resume()
            member.reconnect_store("severed")
            member.reconnect_store("moving")
            member.host.disk.faults.heal()
            member.host.disk.faults.cold_reads = 0.0
            member.store_faults.unknown_applied = member.store_faults.unknown_not_applied = 0.0
            member.down_until = 0.0
            if member.host.threads is not None:
                member.host.threads.slowness = 1.0

    def _choose(self) -> BrokerHost:
        """Choose a broker, most often one that leads a partition."""
        leaders = {state.leader for state in self._stage.history.now.values()}
        leading = [member for member in self._stage.members if member.node_id in leaders]
        return self._random.choice(
            leading if leading and self._random.random() < 0.7 else self._stage.members
        )

    # --- dying

    async def _crash(self, member: BrokerHost) -> None:
        self._outages.keep_down(member)
        self._outages.end(member)

    async def _lose_power(self, member: BrokerHost) -> None:
        self._outages.keep_down(member)
        if self.survival.may_lose_power(member):
            member.power_loss()
        else:
            self._outages.end(member)

    async def _stop(self, member: BrokerHost) -> None:
        self._outages.keep_down(member)
        try:
            await member.stop()
        except (SimulatedCrash, OSError):
            self._outages.end(member)  # a stop that meets a failing disk is a crash

    async def _crash_in_operation(self, member: BrokerHost) -> None:
        if self.survival.may_crash(member):
            self._outages.keep_down(member)
            member.host.disk.faults.crash_after(self._random.randint(1, 60))

    async def _crash_all(self, _: BrokerHost) -> None:
        """Crash all brokers within a tenth of a second; they start again in any order."""
        for member in self._random.sample(list(self._stage.members), len(self._stage.members)):
            self._outages.keep_down(member)
            if self._durability == "fsync" and self._random.random() < 0.7:
                member.power_loss()
            else:
                self._outages.end(member)
            await self._sleep(0.0, 0.03)

    async def _empty_disk(self, member: BrokerHost) -> None:
        """Replace the disk by an empty one, while other replicas are complete."""
        if self.survival.may_lose_copy(member):
            self._outages.keep_down(member)
            if len(member.machine_members) == 1:
                member.power_loss()
            else:
                member.crash()
            member.empty_disk()

    # --- out of reach

    async def _pause(self, member: BrokerHost) -> None:
        if member.is_running and not member.is_paused:
            member.pause()
            await self._sleep(0.05, 2 * self._session_seconds)
            if self._random.random() < 0.8:
                member.resume()

    async def _keep_from_store(self, member: BrokerHost) -> None:
        member.disconnect_store("severed")
        await self._sleep(0.05, 2 * self._session_seconds)
        if self._random.random() < 0.8:
            member.reconnect_store("severed")

    async def _part_two(self, member: BrokerHost) -> None:
        other = self._random.choice([each for each in self._stage.members if each is not member])
        if self._random.random() < 0.5:
            self._network.part(member.host.name, other.host.name)
        else:
            self._network.sever(member.host.name, other.host.name)
        await self._sleep(0.05, 2 * self._session_seconds)

    async def _isolate(self, member: BrokerHost) -> None:
        """Cut the broker off from its peers, perhaps one way only, and perhaps from the store and from
        clients.
        """
        is_one_way = self._random.random() < 0.3
        for other in self._stage.members:
            if other is not member:
                self._network.sever(member.host.name, other.host.name)
                if not is_one_way:
                    self._network.sever(other.host.name, member.host.name)
        if self._random.random() < 0.5:
            member.disconnect_store("severed")
        if self._random.random() < 0.5:
            self._network.part(member.host.name, CLIENT_HOST)
        await self._sleep(0.05, 2 * self._session_seconds)
        if self._random.random() < 0.8:
            self._network.heal(member.host.name)
            member.reconnect_store("severed")

    async def _expire(self, member: BrokerHost) -> None:
        member.expire_session()

    async def _reset_connections(self, member: BrokerHost) -> None:
        for stream in self._network.streams(member.host.name):
            if self._random.random() < 0.5:
                stream.reset()

    # --- the machine

    async def _fail_sync(self, member: BrokerHost) -> None:
        if self.survival.may_lose_power(member) and not self.survival.is_any_suspect():
            member.is_suspect = True
            await self._machine.fail_sync(member)

    async def _jump_clock(self, member: BrokerHost) -> None:
        """Let a wall clock jump by hours; perhaps a follower hangs meanwhile, while its session lives."""
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

    async def _move_session(self, member: BrokerHost) -> None:
        """End the connection to the store; the next one leads to another server."""
        member.disconnect_store("moving")
        await asyncio.sleep(self._losses.uniform(0.0, self._session_seconds / 2))
        member.reconnect_store("moving")

    async def _disturb_store(self, _: BrokerHost) -> None:
        """Kill the server of the store, or let it hang; all brokers lose their sessions with it."""
        store_host = self._stage.store_host
        assert store_host is not None
        self.troubled.update(member.node_id for member in self._stage.members)
        seconds = self._losses.uniform(0.05, 2 * self._session_seconds)
        if self._losses.random() < 0.5:
            store_host.down_until = self._stage.world.loop.time() + seconds
            store_host.crash()
        else:
            store_host.pause()
            await asyncio.sleep(seconds)
            store_host.resume()

    async def _sleep(self, low: float, high: float) -> None:
        await asyncio.sleep(self._random.uniform(low, high))
