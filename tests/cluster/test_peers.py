"""Detection of dead brokers by their closed ports, in virtual time. Silence and broken networks are not
death.

No session expires in these tests: a broker that leaves the cluster was removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from node import ClusterNode, quiet_log

from penstock.cluster import znodes
from penstock.cluster.broker_removal import BrokerRemoval
from penstock.cluster.change_list import ChangeList
from penstock.cluster.coordination import Node
from penstock.cluster.image import NO_LEADER, ClusterImage, PartitionState, RegisteredBroker
from penstock.cluster.membership import BrokerIdentity
from penstock.cluster.memory import Faults, MemoryEnsemble, MemoryStore
from penstock.cluster.peers import PING_SECONDS, PeerContext, Peers, peers_of
from penstock.cluster.topics import CreatableTopic
from penstock.model import BrokerEpoch, BrokerId
from penstock.net.network import Listener, Socket
from simulation.machine.clock import SimulatedClock
from simulation.machine.loop import SimulationLoop, new_loop
from simulation.machine.network import SimulatedNetwork
from simulation.machine.process import SimulatedProcess
from simulation.machine.trace import Trace
from support.eventually import eventually_async

PORT = 9092
FOUND_SECONDS = 0.25
LONG_SECONDS = 600.0


class SimulatedNode:
    """Peers and metadata of a broker, as a process on a host of its own."""

    def __init__(self, world: World, number: int) -> None:
        self.id = BrokerId(number)
        self.host = f"host-{number}"
        self.failovers: list[float] = []
        self.lost: list[BrokerId] = []
        self.sockets: list[Socket] = []
        self.process = SimulatedProcess(self.host)
        self.store: MemoryStore = world.ensemble.client(world.faults)
        self.network = world.network.host(self.host)
        self.listener: Listener | None = None
        self.turns_away = False
        self.cluster = ClusterNode(self.store, self.id, seed=number)
        change_list = ChangeList(self.store, f"{number}-{id(self)}")
        metadata = self.cluster.metadata
        self.removal = BrokerRemoval(self.store, metadata, change_list, self.id)
        clock = SimulatedClock(world.loop.time)
        context = PeerContext(
            self.id, self.network, clock, quiet_log(), self.lost.append, self.failovers.append
        )
        self.peers = Peers(metadata, self.removal, context)

    async def listen(self) -> None:
        self.listener = await self.network.listen("0.0.0.0", PORT, self._accept)

    def _accept(self, socket: Socket) -> bool:
        if self.turns_away:
            socket.close()
        self.sockets.append(socket)
        return True

    async def start(self, host: str | None = None) -> BrokerEpoch:
        await self.store.start()
        await self.cluster.load()
        await self.listen()
        identity = BrokerIdentity(host or self.host, PORT, self.host, UUID(int=self.id))
        epoch = await self.cluster.membership.register(identity, lambda _: True)
        await self.cluster.membership.take_leadership()
        await self.cluster.controller.start()
        self.peers.start()
        return epoch

    @property
    def image(self) -> ClusterImage:
        return self.cluster.metadata.image

    @property
    def partition(self) -> PartitionState:
        return self.image.topics["a"].partitions[0]


class World:
    def __init__(self, loop: SimulationLoop, seed: int = 1) -> None:
        self.loop = loop
        self.faults = Faults(Random(seed), max_delay_s=0.002)
        self.ensemble = MemoryEnsemble()
        self.network = SimulatedNetwork(loop, Random(seed), Trace(loop.time))
        self.nodes: dict[int, SimulatedNode] = {}

    async def start(self, number: int, host: str | None = None) -> SimulatedNode:
        node = self.nodes[number] = SimulatedNode(self, number)
        await node.process.run(node.start(host))
        return node

    def kill(self, number: int) -> SimulatedNode:
        node = self.nodes.pop(number)
        node.process.end()
        self.network.crash(node.host)
        return node

    async def until(self, condition: Callable[[], object], within_seconds: float) -> None:
        await eventually_async(condition, within_s=within_seconds, poll_s=0.001)

    def all_see(self, numbers: Iterable[int]) -> bool:
        return all(set(node.image.brokers) == set(numbers) for node in self.nodes.values())

    def registered(self) -> list[str]:
        return self.ensemble.tree.children(znodes.BROKER_IDS)

    async def stays(self, numbers: Iterable[int]) -> None:
        """Check that no broker is removed for a long time."""
        expected = [str(number) for number in numbers]
        for _ in range(100):
            await asyncio.sleep(LONG_SECONDS / 100)
            assert self.registered() == expected


def run(scenario: Callable[[World], Awaitable[None]], seed: int = 1) -> None:
    """Three brokers: the first is the controller, the second leads partition 0 of topic a."""

    async def body() -> None:
        world = World(loop, seed)
        for number in (1, 2, 3):
            await world.start(number)
        first = world.nodes[1]
        await world.until(lambda: world.all_see([1, 2, 3]), 1)
        assert {node.image.controller_id for node in world.nodes.values()} == {1}
        await first.cluster.administration.create_topics(
            [CreatableTopic("a", assignment=[(0, [2, 3, 1]), (1, [1, 2, 3])])]
        )
        await asyncio.sleep(1)
        await scenario(world)

    loop = new_loop()
    try:
        loop.run_until_complete(body())
        assert loop.unhandled == []
    finally:
        loop.close()


def test_dead_leader_is_replaced_before_session_expiry() -> None:
    async def scenario(world: World) -> None:
        before = world.nodes[3].partition
        world.kill(2)
        await world.until(lambda: world.nodes[3].partition.leader == 3, FOUND_SECONDS)
        assert world.nodes[3].partition.leader_epoch == before.leader_epoch + 1
        assert world.all_see([1, 3])
        assert [node.peers.found_dead for node in world.nodes.values()] == [1, 0]
        await world.until(lambda: world.nodes[1].failovers, FOUND_SECONDS)
        [seconds] = world.nodes[1].failovers
        assert 0 < seconds < FOUND_SECONDS

    run(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_dead_controller_is_replaced_as_controller_and_leader(seed: int) -> None:
    async def scenario(world: World) -> None:
        world.kill(1)
        second = world.nodes[2]
        await world.until(
            lambda: (
                second.image.controller_id in (2, 3) and second.image.topics["a"].partitions[1].leader == 2
            ),
            FOUND_SECONDS,
        )
        await world.until(lambda: world.all_see([2, 3]), FOUND_SECONDS)
        assert sum(node.peers.found_dead for node in world.nodes.values()) == 1
        await world.until(lambda: any(node.failovers for node in world.nodes.values()), FOUND_SECONDS)
        # The new controller watches the others.
        last = {2: 3, 3: 2}[second.image.controller_id]
        controller = world.nodes[second.image.controller_id]
        await asyncio.sleep(0.1)
        world.kill(last)
        await world.until(lambda: set(controller.image.brokers) == {controller.id}, FOUND_SECONDS)

    run(scenario, seed)


@pytest.mark.parametrize("seed", range(20))
def test_lost_store_responses_delay_removal_only_briefly(seed: int) -> None:
    async def scenario(world: World) -> None:
        world.faults.unknown_applied = world.faults.unknown_not_applied = 0.3
        world.kill(1)
        await world.until(lambda: world.registered() == ["2", "3"], 10)
        world.faults.unknown_applied = world.faults.unknown_not_applied = 0
        await world.until(
            lambda: {node.image.controller_id for node in world.nodes.values()} in ({2}, {3}), 10
        )
        await world.until(lambda: world.all_see([2, 3]), 10)

    run(scenario, seed)


def test_silent_broker_is_not_removed() -> None:
    async def scenario(world: World) -> None:
        for stream in world.network.streams():
            stream.drop()
        world.network.sever("host-1", "host-2")
        world.network.sever("host-1", "host-3")
        await world.stays([1, 2, 3])

    run(scenario)


def test_network_partition_is_not_death() -> None:
    async def scenario(world: World) -> None:
        for stream in world.network.streams():
            stream.reset()
        for number in (2, 3):
            world.network.sever("host-1", f"host-{number}")
        await world.stays([1, 2, 3])

    run(scenario)


def test_hanging_broker_is_not_removed() -> None:
    async def scenario(world: World) -> None:
        world.nodes[2].process.is_paused = True
        await world.stays([1, 2, 3])

    run(scenario)


def test_reconnected_broker_is_not_removed() -> None:
    async def scenario(world: World) -> None:
        for _ in range(50):
            await asyncio.sleep(PING_SECONDS / 7)
            for stream in world.network.streams():
                stream.reset()
        await world.stays([1, 2, 3])

    run(scenario)


def test_broker_that_closes_connections_is_not_removed_or_overloaded() -> None:
    async def scenario(world: World) -> None:
        second = world.nodes[2]
        second.turns_away = True
        for socket in second.sockets:
            socket.close()
        taken = len(second.sockets)
        await asyncio.sleep(10)
        assert len(second.sockets) - taken < 20
        assert world.registered() == ["1", "2", "3"]

    run(scenario)


def test_single_refusal_does_not_remove_a_broker() -> None:
    async def scenario(world: World) -> None:
        second = world.nodes[2]
        assert second.listener is not None
        second.listener.close()
        for socket in second.sockets:
            socket.close()
        await asyncio.sleep(0.04)
        await second.listen()
        await world.stays([1, 2, 3])

    run(scenario)


def test_stopping_broker_is_not_reported_dead() -> None:
    async def scenario(world: World) -> None:
        second = world.nodes[2]
        await second.cluster.membership.leave()
        assert second.listener is not None
        second.listener.close()
        for socket in second.sockets:
            socket.close()
        await world.stays([1, 2, 3])
        assert world.nodes[1].peers.found_dead == 0

    run(scenario)


def test_broker_never_reached_is_not_removed() -> None:
    """The broker advertises an address that others cannot use: removing it again and again would not help."""

    async def scenario(world: World) -> None:
        world.kill(3)
        await world.until(lambda: world.registered() == ["1", "2"], FOUND_SECONDS)
        await world.start(3, host="host-that-is-not-there")
        await world.stays([1, 2, 3])

    run(scenario)


def test_restarted_broker_is_not_removed() -> None:
    async def scenario(world: World) -> None:
        first = world.nodes[1]
        former = first.image.brokers[BrokerId(2)]
        world.kill(2)
        again = await world.start(2)
        assert not await first.removal.remove(former)
        await world.stays([1, 2, 3])
        assert again.image.brokers[BrokerId(2)].epoch > former.epoch

    run(scenario)


def test_broker_registering_during_removal_is_not_removed() -> None:
    """The old and the new registration have the same version."""

    async def scenario(world: World) -> None:
        first = world.nodes[1]
        former = first.image.brokers[BrokerId(2)]

        class Slow(MemoryStore):
            has_read = False

            async def get_many(self, paths: object) -> list[Node | None]:
                nodes = await super().get_many(paths)  # type: ignore[arg-type]
                if not self.has_read:
                    self.has_read = True
                    world.kill(2)
                    await world.start(2)
                return nodes

        store = Slow(world.ensemble)
        await store.start()
        removal = BrokerRemoval(store, first.cluster.metadata, ChangeList(store, "slow"), first.id)
        assert not await removal.remove(former)
        assert world.registered() == ["1", "2", "3"]

    run(scenario)


def test_only_the_controller_removes_other_brokers() -> None:
    async def scenario(world: World) -> None:
        third = world.nodes[3]
        assert not await third.removal.remove(third.image.brokers[BrokerId(2)])
        assert world.registered() == ["1", "2", "3"]

    run(scenario)


def test_fenced_controller_removes_no_broker() -> None:
    async def scenario(world: World) -> None:
        first = world.nodes[1]

        class Replaced(MemoryStore):
            """Another broker becomes controller between the read and the write."""

            async def get_many(self, paths: object) -> list[Node | None]:
                nodes = await super().get_many(paths)  # type: ignore[arg-type]
                if world.ensemble.tree.get(znodes.CONTROLLER).data == holder:
                    await world.nodes[3].removal.remove(first.image.brokers[BrokerId(1)])
                    await world.until(lambda: world.nodes[3].image.controller_id == 3, 1)
                return nodes

        for number in (1, 2):
            await world.nodes[number].cluster.controller.stop()
        holder = world.ensemble.tree.get(znodes.CONTROLLER).data
        store = Replaced(world.ensemble)
        await store.start()
        removal = BrokerRemoval(store, first.cluster.metadata, ChangeList(store, "replaced"), first.id)
        assert not await removal.remove(first.image.brokers[BrokerId(2)])
        assert world.registered() == ["2", "3"]

    run(scenario)


def test_controller_and_brokers_watch_each_other() -> None:
    def broker(number: int) -> RegisteredBroker:
        return RegisteredBroker(BrokerId(number), f"host-{number}", PORT, BrokerEpoch(10 + number), "m")

    def watched(image: ClusterImage, me: int) -> list[tuple[int, int]]:
        return sorted(peers_of(image, BrokerId(me)))

    image = ClusterImage("c").with_members(map(broker, (1, 2, 3)), BrokerId(1))
    assert watched(image, 1) == [(2, 12), (3, 13)]
    assert watched(image, 2) == watched(image, 3) == [(1, 11)]
    assert watched(image.with_members(map(broker, (1, 2)), NO_LEADER), 2) == []
    assert watched(image.with_members(map(broker, (1, 2)), BrokerId(3)), 2) == []
    assert watched(image.with_members(map(broker, (1, 2)), BrokerId(3)), 3) == [], "it is not a member"
    stopping = replace(broker(1), is_stopping=True)
    assert watched(image.with_members([stopping, broker(2)], BrokerId(1)), 2) == []
