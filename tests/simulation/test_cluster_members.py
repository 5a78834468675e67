"""Real brokers in a simulated cluster, for what needs one scenario rather than many seeds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from penstock.server.maintenance import Maintenance
from penstock.simulation.client import NoAnswer
from penstock.simulation.cluster_member import ClusterMember
from penstock.simulation.cluster_stage import ClusterStage
from penstock.simulation.host import SimulatedWorld
from penstock.simulation.loop import SimulationLoop
from penstock.simulation.partition_history import PartitionHistory, RecordedEnsemble
from penstock.simulation.trace import Trace

Scenario = Callable[[ClusterStage], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play(loop: SimulationLoop, trace: Trace) -> Play:
    """Runs a scenario with three brokers that are not started yet."""

    def play(scenario: Scenario) -> None:
        world = SimulatedWorld(1, loop, trace)
        ensemble = RecordedEnsemble(PartitionHistory(trace, loop.time))
        settings = {"auto.create.topics.enable": "false"}
        members = [ClusterMember(world, node_id, settings, ensemble, 2.0) for node_id in (1, 2, 3)]
        stage = ClusterStage(world, members, ensemble)
        loop.run_until_complete(scenario(stage))
        for member in members:
            assert member.problems == []

    return play


async def start(members: Sequence[ClusterMember]) -> None:
    for member in members:
        await member.start()


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_broker_that_is_lost_while_it_starts_serves_nobody_who_waits_at_its_door(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(stage: ClusterStage) -> None:
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


def test_a_change_that_fails_after_its_answer_was_due_is_nobodys_surprise(
    play: Play, loop: SimulationLoop
) -> None:
    async def scenario(stage: ClusterStage) -> None:
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


def test_another_broker_leads_when_the_leader_is_gone_and_nothing_is_lost(play: Play) -> None:
    async def scenario(stage: ClusterStage) -> None:
        await start(stage.members)
        broker = stage.routing("client")._brokers[1]
        await broker.create_topic("orders", 1, {}, 3)
        first = stage.partition("orders", 0)
        assert first is not None
        stage.member(first.leader).crash()
        await until(lambda: _leader(stage) not in (first.leader, -1))

    play(scenario)


def _leader(stage: ClusterStage) -> int:
    state = stage.partition("orders", 0)
    return -1 if state is None else state.leader
