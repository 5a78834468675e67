"""Faults between hosts; see test_network_contract.py for what both networks do."""

from __future__ import annotations

import asyncio
import random

import pytest

from simulation.machine.loop import SimulationLoop
from simulation.machine.network import SimulatedNetwork
from simulation.machine.process import SimulatedProcess
from simulation.machine.stream import SimulatedSocket
from simulation.machine.trace import Trace


@pytest.fixture
def network(loop: SimulationLoop, trace: Trace) -> SimulatedNetwork:
    return SimulatedNetwork(loop, random.Random(1), trace)


async def connect(network: SimulatedNetwork) -> tuple[SimulatedSocket, SimulatedSocket]:
    accepted: list[SimulatedSocket] = []

    def accept(socket: object) -> bool:
        assert isinstance(socket, SimulatedSocket)
        accepted.append(socket)
        return True

    listener = await network.host("broker").listen("0.0.0.0", 0, accept)
    client = await network.host("client").connect("broker", listener.port)
    await asyncio.sleep(0.1)
    listener.close()
    return client, accepted[0]


def received(socket: SimulatedSocket) -> bytes:
    buffer = bytearray(1000)
    try:
        return bytes(buffer[: socket.recv_into(memoryview(buffer))])
    except BlockingIOError:
        return b""


def test_connected_peers_know_the_address_of_each_other(
    loop: SimulationLoop, network: SimulatedNetwork
) -> None:
    async def main() -> None:
        client, server = await connect(network)
        assert client.peer.startswith("broker:")
        assert server.peer.startswith("client:")

    loop.run_until_complete(main())


def test_reset_breaks_both_ends(loop: SimulationLoop, network: SimulatedNetwork) -> None:
    async def main() -> None:
        client, server = await connect(network)
        client.sendmsg([b"lost"], more=False)
        [stream] = network.streams("broker")
        stream.reset()
        await asyncio.sleep(1)
        for socket in (client, server):
            with pytest.raises(ConnectionResetError):
                received(socket)
            with pytest.raises(ConnectionResetError):
                socket.sendmsg([b"more"], more=False)

    loop.run_until_complete(main())


def test_dropped_connection_is_silent(loop: SimulationLoop, network: SimulatedNetwork) -> None:
    async def main() -> None:
        client, server = await connect(network)
        network.streams()[0].drop()
        client.sendmsg([b"hello?"], more=False)
        await asyncio.sleep(100)
        assert received(server) == b""

    loop.run_until_complete(main())


def test_severed_hosts_hear_each_other_again_after_healing(
    loop: SimulationLoop, network: SimulatedNetwork
) -> None:
    async def main() -> None:
        client, server = await connect(network)
        network.sever("client", "broker")
        client.sendmsg([b"held"], more=False)
        await asyncio.sleep(100)
        assert received(server) == b""
        network.heal()
        await asyncio.sleep(1)
        assert b"held".startswith(received(server) or b"?")

    loop.run_until_complete(main())


def test_connecting_over_a_severed_link_times_out(loop: SimulationLoop, network: SimulatedNetwork) -> None:
    async def main() -> None:
        listener = await network.host("broker").listen("", 9092, lambda _: True)
        network.sever("client", "broker")
        with pytest.raises(TimeoutError):
            await network.host("client").connect("broker", listener.port)

    loop.run_until_complete(main())


def test_crash_of_a_host_resets_its_peers_and_frees_its_ports(
    loop: SimulationLoop, network: SimulatedNetwork
) -> None:
    async def main() -> None:
        client, _ = await connect(network)
        await network.host("broker").listen("", 9092, lambda _: True)
        network.crash("broker")
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            received(client)
        with pytest.raises(ConnectionRefusedError):
            await network.host("client").connect("broker", 9092)
        await network.host("broker").listen("", 9092, lambda _: True)

    loop.run_until_complete(main())


def test_bytes_of_a_crashed_process_may_still_arrive(loop: SimulationLoop, network: SimulatedNetwork) -> None:
    async def main() -> None:
        client, server = await connect(network)
        process = SimulatedProcess("client")

        async def program() -> None:
            client.sendmsg([b"last"], more=False)

        await process.spawn(program())
        process.end()
        await asyncio.sleep(1)
        assert b"last".startswith(received(server) or b"?")

    loop.run_until_complete(main())


def test_dead_process_is_not_called_back(loop: SimulationLoop, network: SimulatedNetwork) -> None:
    calls: list[str] = []

    async def main() -> None:
        client, server = await connect(network)
        process = SimulatedProcess("broker")

        async def program() -> None:
            server.on_readable(lambda: calls.append("called"))

        await process.spawn(program())
        process.end()
        client.sendmsg([b"hello?"], more=False)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert calls == []


def test_connections_overtake_each_other_but_never_themselves(
    loop: SimulationLoop, network: SimulatedNetwork
) -> None:
    arrivals: list[tuple[int, int]] = []

    async def main() -> None:
        pairs = [await connect(network) for _ in range(5)]

        def watch(number: int, socket: SimulatedSocket) -> None:
            socket.on_readable(lambda: arrivals.extend((number, byte) for byte in received(socket)))

        for number, (_, server) in enumerate(pairs):
            watch(number, server)
        for byte in range(20):
            for client, _ in pairs:
                client.sendmsg([bytes([byte])], more=False)
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    for number in range(5):
        assert [byte for connection, byte in arrivals if connection == number] == list(range(20))
    assert arrivals != sorted(arrivals, key=lambda arrival: arrival[1])


def test_link_severed_one_way_works_the_other_way(loop: SimulationLoop, network: SimulatedNetwork) -> None:
    async def main() -> None:
        client, server = await connect(network)
        network.sever("client", "broker")
        client.sendmsg([b"?"], more=False)
        server.sendmsg([b"!"], more=False)
        await asyncio.sleep(1)
        assert received(server) == b""
        assert received(client) == b"!"
        network.heal("broker")
        await asyncio.sleep(1)
        assert received(server) == b"?"

    loop.run_until_complete(main())
