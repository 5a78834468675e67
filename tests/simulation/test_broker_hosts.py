"""A real broker on a simulated machine, in scenarios that seeds show too rarely."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.errors import BrokerError
from penstock.records.building import NewRecord, build_batch
from penstock.simulation.clients.client import SimulatedClient
from penstock.simulation.machine.host import SimulatedWorld
from penstock.simulation.machine.loop import SimulationLoop
from penstock.simulation.machine.process import SimulatedCrash
from penstock.simulation.machine.trace import Trace
from penstock.simulation.scenarios.broker_host import BrokerHost
from penstock.simulation.scenarios.stage import Stage

Scenario = Callable[[BrokerHost, SimulatedClient], Awaitable[None]]


@pytest.fixture
def play(loop: SimulationLoop, trace: Trace) -> Callable[[Scenario], None]:
    def play(scenario: Scenario) -> None:
        world = SimulatedWorld(1, loop, trace)
        broker = BrokerHost(world, "broker", {})
        stage = Stage(world, broker)
        stage.gate.set()

        async def main() -> None:
            await broker.start()
            await scenario(broker, stage.client("client"))

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
