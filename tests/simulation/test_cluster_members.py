"""Real brokers in a simulated cluster, in scenarios that seeds show too rarely."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from cluster_mutants import joins_before_the_epoch_start, replica_lag_is_measured_by_the_wall_clock

from penstock.records.building import NewRecord, build_batch
from penstock.replication.replica import Replica
from penstock.server.maintenance import Maintenance
from simulation.checks.inspector import Inspector
from simulation.clients.client import NoAnswer
from simulation.clients.routing_client import RoutingClient
from simulation.machine.host import SimulatedWorld
from simulation.machine.loop import SimulationLoop
from simulation.machine.trace import Trace
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import PartitionHistory, RecordedEnsemble
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage
from support.eventually import eventually_async

Scenario = Callable[[Stage], Awaitable[None]]
Play = Callable[[Scenario], None]
_LAG_SECONDS = 1.0


@pytest.fixture
def play(loop: SimulationLoop, trace: Trace) -> Play:
    """Runs a scenario with four brokers that are not started yet."""

    def play(scenario: Scenario) -> None:
        world = SimulatedWorld(1, loop, trace)
        ensemble = RecordedEnsemble(PartitionHistory(trace, loop.time))
        settings = {
            "auto.create.topics.enable": "false",
            "replica.lag.time.max.ms": str(int(_LAG_SECONDS * 1000)),
            "replica.fetch.response.max.bytes": "1",
        }
        members = [BrokerHost(world, node_id, settings, ensemble, 2.0) for node_id in (1, 2, 3, 4)]
        stage = Stage(world, members, ensemble)
        loop.run_until_complete(scenario(stage))
        for member in members:
            assert member.problems == []

    return play


async def start(members: Sequence[BrokerHost]) -> None:
    for member in members:
        await member.start()


def test_broker_that_loses_its_session_at_start_serves_no_client(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(stage: Stage) -> None:
        [member, *_] = stage.members
        waiting: list[asyncio.Future[object]] = []
        begin = Maintenance.start

        async def lose_session_first(self: Maintenance) -> None:
            waiting.append(asyncio.ensure_future(stage.routing("client")._brokers[1].topics()))
            await asyncio.sleep(0.1)
            member.expire_session()
            await begin(self)

        monkeypatch.setattr(Maintenance, "start", lose_session_first)
        await member.start()
        assert member.is_lost
        await asyncio.wait(waiting)
        assert isinstance(waiting[0].exception(), NoAnswer)
        await member.stop()

    play(scenario)


def test_change_that_fails_after_its_timeout_leaves_no_unhandled_error(
    play: Play, loop: SimulationLoop
) -> None:
    async def scenario(stage: Stage) -> None:
        await start(stage.members)
        [member, *_] = stage.members
        broker = stage.routing("client")._brokers[1]
        await broker.create_topic("orders", 1, {}, 3)
        member.store_faults.max_delay_s = 10.0
        deleting = asyncio.ensure_future(broker.delete_topic("orders"))
        await asyncio.sleep(4.0)
        assert deleting.done()
        assert deleting.exception() is not None
        member.expire_session()
        await member.stop()
        await asyncio.sleep(20.0)
        assert loop.unhandled == []

    play(scenario)


def test_another_replica_leads_when_the_leader_crashes(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await start(stage.members)
        broker = stage.routing("client")._brokers[1]
        await broker.create_topic("orders", 1, {}, 3)
        first = stage.partition("orders", 0)
        assert first is not None
        stage.member(first.leader).crash()
        await eventually_async(lambda: _leader(stage) not in (first.leader, -1))

    play(scenario)


def _leader(stage: Stage) -> int:
    state = stage.partition("orders", 0)
    return -1 if state is None else state.leader


async def _behind_the_epoch_start(stage: Stage) -> None:
    """Kill a leader when all records are acknowledged: the next leader does not know that yet, and a follower
    lacks one.
    """
    await start(stage.members)
    routing, network = stage.routing("client"), stage.world.network
    await routing._brokers[3].create_topic("orders", 1, {"min.insync.replicas": "1"}, 4)
    state = stage.partition("orders", 0)
    assert state is not None
    leader, heir, mute, late = (stage.member(node_id) for node_id in state.replicas)
    await eventually_async(lambda: all(any(member.replicas()) for member in stage.members))
    await send(routing, 5)
    network.part(late.host.name, leader.host.name)
    await send(routing, 5)  # the first record waits until the late follower has left the in-sync set
    assert _in_sync(stage) == {leader.node_id, heir.node_id, mute.node_id}
    network.part(
        mute.host.name, heir.host.name
    )  # in sync, but the next leader does not learn its log end offset
    leader.crash()
    await eventually_async(lambda: _log_end(late) == 9, poll_s=0.0001)
    assert (_log_end(heir), _high_watermark(heir)) == (10, 9)
    network.sever(
        heir.host.name, late.host.name
    )  # its log end offset reaches the new leader, but the next record does not reach it
    inspector = Inspector(stage)
    inspector.expect("orders", 0, committed=10)
    for _ in range(50):
        await asyncio.sleep(0.01)
        inspector.look()


async def send(routing: RoutingClient, count: int) -> None:
    for number in range(count):
        leader, _ = await routing.leader("orders", 0)
        batch = bytes(build_batch([NewRecord(None, b"%d" % number, 1_700_000_000_000)]))
        assert await leader.produce("orders", 0, batch, -1, zstd=False).result() is not None


def test_follower_joins_only_with_all_records_before_the_leader_epoch(play: Play) -> None:
    play(_behind_the_epoch_start)


def test_follower_that_joins_before_the_epoch_start_is_noticed(play: Play) -> None:
    with joins_before_the_epoch_start(), pytest.raises(InvariantViolated, match="I11"):
        play(_behind_the_epoch_start)


async def _hang_while_the_clock_goes_back(stage: Stage) -> None:
    """Set the wall clock of a leader back by an hour while a follower hangs and lacks a record."""
    await start(stage.members)
    routing = stage.routing("client")
    await routing._brokers[3].create_topic("orders", 1, {"min.insync.replicas": "1"}, 3)
    state = stage.partition("orders", 0)
    assert state is not None
    leader, hung, _ = (stage.member(node_id) for node_id in state.replicas)
    await eventually_async(lambda: hung.node_id in _in_sync(stage) and any(hung.replicas()))
    await send(routing, 5)
    stage.world.network.part(hung.host.name, leader.host.name)
    sending = asyncio.ensure_future(send(routing, 1))
    await eventually_async(lambda: _log_end(leader) == 6, poll_s=0.001)
    leader.host.clock.jump(-3_600_000)
    await asyncio.wait([sending], timeout=_LAG_SECONDS + 2.0)
    assert hung.node_id not in _in_sync(stage), "a hung follower is still in sync"
    await sending


def test_hung_follower_leaves_in_time_though_the_clock_goes_back(play: Play) -> None:
    play(_hang_while_the_clock_goes_back)


def test_hung_follower_kept_by_the_wall_clock_is_noticed(play: Play) -> None:
    with (
        replica_lag_is_measured_by_the_wall_clock(),
        pytest.raises(AssertionError, match="a hung follower is still in sync"),
    ):
        play(_hang_while_the_clock_goes_back)


def _replica(member: BrokerHost) -> Replica:
    [replica] = [each for each in member.replicas() if each.name.topic == "orders"]
    return replica


def _log_end(member: BrokerHost) -> int:
    return _replica(member).log.log_end_offset


def _high_watermark(member: BrokerHost) -> int:
    return _replica(member).log.high_watermark


def _in_sync(stage: Stage) -> set[int]:
    state = stage.partition("orders", 0)
    return set() if state is None else set(state.isr)
