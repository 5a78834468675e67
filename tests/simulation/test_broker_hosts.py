"""A real broker on a simulated machine, in scenarios that seeds show too rarely."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.errors import BrokerError
from penstock.records.building import NewRecord, build_batch
from simulation.checks.auditor import Auditor
from simulation.clients.client import SimulatedClient
from simulation.clients.routing_client import NO_EPOCH
from simulation.machine.host import SimulatedWorld
from simulation.machine.loop import SimulationLoop
from simulation.machine.process import SimulatedCrash
from simulation.machine.trace import Trace
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import PartitionHistory, RecordedEnsemble
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage

Scenario = Callable[[BrokerHost, SimulatedClient], Awaitable[None]]


def alone(loop: SimulationLoop, trace: Trace) -> Stage:
    world = SimulatedWorld(1, loop, trace)
    ensemble = RecordedEnsemble(PartitionHistory(trace, loop.time))
    broker = BrokerHost(world, 1, {}, ensemble, 6.0, is_store_embedded=True)
    return Stage(world, [broker], ensemble)


@pytest.fixture
def play(loop: SimulationLoop, trace: Trace) -> Callable[[Scenario], None]:
    def play(scenario: Scenario) -> None:
        stage = alone(loop, trace)
        stage.gate.set()
        broker = stage.broker

        async def main() -> None:
            await broker.start()
            await scenario(broker, stage.routing("client").first)

        loop.run_until_complete(main())
        assert broker.problems == []

    return play


async def produce(client: SimulatedClient, topic: str, value: bytes) -> int:
    await client.connect()
    batch = bytes(build_batch([NewRecord(None, value, 1_700_000_000_000)]))
    result = await client.produce(topic, 0, batch, -1, zstd=False).result()
    assert result is not None
    return result.base_offset


async def starts(broker: BrokerHost, operations: int) -> bool:
    """Whether the broker serves before it dies, `operations` disk operations after a crash."""
    broker.crash()
    broker.host.disk.faults.crash_after(operations)
    try:
        await broker.start()
    except SimulatedCrash:
        return False
    broker.host.disk.faults.heal()
    return True


def test_acknowledged_records_are_there_after_a_power_loss(play: Callable[[Scenario], None]) -> None:
    async def scenario(broker: BrokerHost, client: SimulatedClient) -> None:
        await client.create_topic("orders", 1, {})
        assert await produce(client, "orders", b"first") == 0
        broker.power_loss()
        client.disconnect()
        await broker.start()
        assert await produce(client, "orders", b"second") == 1

    play(scenario)


def test_topic_created_on_a_full_disk_works_when_there_is_space_again(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(broker: BrokerHost, client: SimulatedClient) -> None:
        await client.create_topic("before", 1, {})
        broker.host.disk.faults.capacity_bytes = broker.host.disk.used_bytes()
        await client.create_topic("orders", 1, {})
        with pytest.raises(BrokerError):
            await produce(client, "orders", b"too early")
        broker.host.disk.faults.heal()
        await asyncio.sleep(5)
        assert await produce(client, "orders", b"now") == 0
        assert await produce(client, "before", b"too") == 0

    play(scenario)


def test_broker_can_crash_in_the_middle_of_any_disk_operation_of_its_start(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(broker: BrokerHost, client: SimulatedClient) -> None:
        await client.create_topic("orders", 1, {})
        assert await produce(client, "orders", b"first") == 0
        client.disconnect()
        operations = 0
        while not await starts(broker, operations := operations + 1):
            assert operations < 1000
        assert operations > 10
        assert await produce(client, "orders", b"second") == 1

    play(scenario)


def test_client_of_a_broker_alone_names_no_epoch_and_looks_up_nothing(
    loop: SimulationLoop, trace: Trace
) -> None:
    stage = alone(loop, trace)
    stage.gate.set()

    async def scenario() -> None:
        await stage.broker.start()
        client, epoch = await stage.routing("client").leader("a-topic-that-does-not-exist", 0)
        assert (client.is_connected, epoch) == (True, NO_EPOCH)

    loop.run_until_complete(scenario())


def test_recorded_violation_of_a_broker_alone_fails_its_next_audit(
    loop: SimulationLoop, trace: Trace
) -> None:
    stage = alone(loop, trace)

    async def scenario() -> None:
        await stage.broker.start()
        auditor = Auditor(stage)
        await auditor.audit_restart()
        stage.history.problem = InvariantViolated("I10", "an epoch with two leaders")
        with pytest.raises(InvariantViolated, match="two leaders"):
            await auditor.audit_restart()

    loop.run_until_complete(scenario())
