"""Shared connections of a client to brokers, over a simulated network in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from penstock.config import Address
from penstock.internal_client.api import RESPONSE_SECONDS
from penstock.internal_client.connections import BrokerConnections
from penstock.net.broker_connection import BrokerConnection
from penstock.net.frame_stream import FrameStream
from penstock.net.network import Socket
from penstock.unreachable import Unreachable
from simulation.machine.loop import SimulationLoop, new_loop
from simulation.machine.network import SimulatedNetwork
from simulation.machine.trace import Trace

BROKER = Address("broker", 9092)


@pytest.fixture
def loop() -> Iterator[SimulationLoop]:
    loop = new_loop()
    yield loop
    loop.close()
    assert loop.unhandled == []


@pytest.fixture
def network(loop: SimulationLoop) -> SimulatedNetwork:
    return SimulatedNetwork(loop, random.Random(1), Trace(loop.time))


async def served(network: SimulatedNetwork) -> BrokerConnections:
    """Connections to a broker that sends every request back."""
    streams: list[FrameStream] = []

    def accept(socket: Socket) -> bool:
        def send_back(frame: memoryview) -> None:
            stream.send(len(frame).to_bytes(4, "big") + bytes(frame))

        stream = FrameStream(socket, 1_000, send_back, lambda _: None)
        streams.append(stream)
        return True

    await network.host(BROKER.host).listen("", BROKER.port, accept)
    return BrokerConnections(network.host("client"), "test")


async def ask(connection: BrokerConnection, seconds: float = RESPONSE_SECONDS) -> bytes:
    correlation_id = connection.next_correlation_id()
    frame = correlation_id.to_bytes(4, "big")
    async with asyncio.timeout(seconds):
        return bytes(await connection.exchange(correlation_id, len(frame).to_bytes(4, "big") + frame))


def test_connection_that_loses_all_packets_is_replaced(
    loop: SimulationLoop, network: SimulatedNetwork
) -> None:
    async def scenario() -> None:
        connections = await served(network)
        assert await connections.send(BROKER, ask) == (1).to_bytes(4, "big")
        [stream] = network.streams()
        stream.drop()
        with pytest.raises(Unreachable):
            await connections.send(BROKER, ask)
        assert await connections.send(BROKER, ask) == (1).to_bytes(4, "big"), "on a new connection"
        connections.close()

    loop.run_until_complete(scenario())


def test_requests_given_up_early_do_not_keep_a_silent_connection(
    loop: SimulationLoop, network: SimulatedNetwork
) -> None:
    async def scenario() -> None:
        connections = await served(network)
        silent = await connections.get(BROKER)
        [stream] = network.streams()
        stream.drop()
        for _ in range(int(RESPONSE_SECONDS)):
            assert connections.known(BROKER) is silent
            with pytest.raises(TimeoutError):
                await ask(silent, 1.0)
        assert connections.known(BROKER) is None
        assert not silent.is_connected
        connections.close()

    loop.run_until_complete(scenario())


def test_idle_connection_stays(loop: SimulationLoop, network: SimulatedNetwork) -> None:
    async def scenario() -> None:
        connections = await served(network)
        await connections.send(BROKER, ask)
        known = connections.known(BROKER)
        await asyncio.sleep(10 * RESPONSE_SECONDS)
        assert connections.known(BROKER) is known
        assert await connections.send(BROKER, ask) == (2).to_bytes(4, "big")
        connections.close()

    loop.run_until_complete(scenario())
