"""The contract of sockets: the same tests on real and on simulated ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.net.network import Network, Socket, TcpNetwork
from penstock.storage.disk import Disk, File, RealDisk
from simulation.machine.disk import SimulatedDisk
from simulation.machine.loop import new_loop
from simulation.machine.network import SimulatedNetwork
from simulation.machine.trace import Trace

Scenario = Callable[[Network], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture(params=["real", *(f"simulated-{seed}" for seed in range(10))])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def play(kind: str) -> Play:
    def on_asyncio(scenario: Scenario) -> None:
        async def main() -> None:
            await scenario(TcpNetwork())

        asyncio.run(main())

    def on_simulation(scenario: Scenario) -> None:
        seed = int(kind.removeprefix("simulated-"))
        loop = new_loop(random.Random(seed))
        network = SimulatedNetwork(loop, random.Random(seed), Trace(loop.time))

        async def main() -> None:
            await scenario(network.host("here"))

        loop.run_until_complete(main())
        loop.close()
        assert loop.unhandled == []

    return on_asyncio if kind == "real" else on_simulation


@pytest.fixture
def disk(kind: str, tmp_path: Path) -> Disk:
    return RealDisk(str(tmp_path)) if kind == "real" else SimulatedDisk(random.Random(1), Trace(lambda: 0.0))


async def connect(network: Network) -> tuple[Socket, Socket]:
    """The two ends of a new connection, the client's first."""
    accepted: asyncio.Future[Socket] = asyncio.get_running_loop().create_future()

    def accept(socket: Socket) -> bool:
        accepted.set_result(socket)
        return True

    listener = await network.listen("127.0.0.1", 0, accept)
    client = await network.connect("127.0.0.1", listener.port)
    server = await accepted
    listener.close()
    return client, server


async def readable(socket: Socket) -> None:
    event = asyncio.Event()
    socket.on_readable(event.set)
    await event.wait()
    socket.on_readable(None)


async def writable(socket: Socket) -> None:
    event = asyncio.Event()
    socket.on_writable(event.set)
    await event.wait()
    socket.on_writable(None)


async def receive(socket: Socket, count: int) -> bytes:
    received = bytearray(count)
    view = memoryview(received)
    while view:
        await readable(socket)
        taken = socket.recv_into(view)
        if taken == 0:
            break
        view = view[taken:]
    return bytes(received[: count - len(view)])


async def send(socket: Socket, data: bytes) -> None:
    view = memoryview(data)
    while view:
        await writable(socket)
        view = view[socket.sendmsg([view[:10], view[10:]], more=False) :]


async def keep_sending(socket: Socket) -> None:
    for _ in range(1000):
        await writable(socket)
        socket.sendmsg([b"hello?"], more=False)
        await asyncio.sleep(0.001)


def send_for_ever(socket: Socket, file: File) -> None:
    while True:
        socket.sendfile(file, 0, 100_000)


def test_bytes_arrive_in_order_and_whole(play: Play) -> None:
    data = random.Random(1).randbytes(40_000)

    async def scenario(network: Network) -> None:
        client, server = await connect(network)
        _, there = await asyncio.gather(send(client, data), receive(server, len(data)))
        _, back = await asyncio.gather(send(server, data), receive(client, len(data)))
        assert there == back == data
        client.close()
        server.close()

    play(scenario)


def test_reading_nothing_would_block(play: Play) -> None:
    async def scenario(network: Network) -> None:
        client, server = await connect(network)
        with pytest.raises(BlockingIOError):
            client.recv_into(memoryview(bytearray(10)))
        client.close()
        server.close()

    play(scenario)


def test_sender_is_held_back_until_the_peer_reads(play: Play) -> None:
    async def scenario(network: Network) -> None:
        client, server = await connect(network)
        sent = 0
        try:
            while True:
                sent += client.sendmsg([bytes(100_000)], more=False)
        except BlockingIOError:
            pass
        waiting = asyncio.ensure_future(writable(client))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        received = await receive(server, sent)
        assert len(received) == sent
        await waiting
        assert client.sendmsg([b"more"], more=False) > 0
        client.close()
        server.close()

    play(scenario)


def test_end_is_seen_after_the_last_byte(play: Play) -> None:
    async def scenario(network: Network) -> None:
        client, server = await connect(network)
        await send(client, b"last words")
        client.close()
        assert await receive(server, 100) == b"last words"
        assert server.recv_into(memoryview(bytearray(10))) == 0
        server.close()

    play(scenario)


def test_closing_over_unread_bytes_resets_the_peer(play: Play) -> None:
    async def scenario(network: Network) -> None:
        client, server = await connect(network)
        await send(client, b"nobody reads this")
        await readable(server)
        server.close()
        await readable(client)
        with pytest.raises(ConnectionResetError):
            client.recv_into(memoryview(bytearray(10)))
        client.close()

    play(scenario)


def test_sending_to_a_closed_peer_fails_in_the_end(play: Play) -> None:
    async def scenario(network: Network) -> None:
        client, server = await connect(network)
        server.close()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            await keep_sending(client)
        client.close()

    play(scenario)


def test_closed_socket_refuses_operations_and_callbacks(play: Play) -> None:
    async def scenario(network: Network) -> None:
        client, server = await connect(network)
        calls: list[str] = []
        client.on_readable(lambda: calls.append("called"))
        client.close()
        await send(server, b"hello?")
        await asyncio.sleep(0.05)
        assert calls == []
        with pytest.raises(OSError):
            client.recv_into(memoryview(bytearray(10)))
        server.close()

    play(scenario)


def test_callbacks_repeat_while_there_is_something_to_read(play: Play) -> None:
    async def scenario(network: Network) -> None:
        client, server = await connect(network)
        received = bytearray()
        done = asyncio.Event()

        def read_one_byte() -> None:
            buffer = bytearray(1)
            received.extend(buffer[: server.recv_into(memoryview(buffer))] and buffer)
            if len(received) == 5:
                server.on_readable(None)
                done.set()

        server.on_readable(read_one_byte)
        await send(client, b"hello")
        await done.wait()
        assert received == b"hello"
        client.close()
        server.close()

    play(scenario)


def test_file_is_sent_from_its_pages(play: Play, disk: Disk) -> None:
    content = random.Random(2).randbytes(30_000)
    file = disk.open("log", create=True)
    file.pwrite(0, [content])

    async def send_file(socket: Socket) -> None:
        position = 1000
        while position < 29_000:
            await writable(socket)
            position += socket.sendfile(file, position, 29_000 - position)

    async def scenario(network: Network) -> None:
        client, server = await connect(network)
        _, received = await asyncio.gather(send_file(client), receive(server, 28_000))
        assert received == content[1000:29_000]
        client.close()
        server.close()

    play(scenario)


def test_full_socket_takes_no_file_either(play: Play, disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, [bytes(100_000)])

    async def scenario(network: Network) -> None:
        client, server = await connect(network)
        with pytest.raises(BlockingIOError):
            send_for_ever(client, file)
        client.close()
        server.close()

    play(scenario)


def test_connection_without_a_listener_is_refused(play: Play) -> None:
    async def scenario(network: Network) -> None:
        listener = await network.listen("127.0.0.1", 0, lambda _: True)
        port = listener.port
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.connect("127.0.0.1", port)

    play(scenario)


def test_port_is_taken_once(play: Play) -> None:
    async def scenario(network: Network) -> None:
        listener = await network.listen("127.0.0.1", 0, lambda _: True)
        with pytest.raises(OSError):
            await network.listen("127.0.0.1", listener.port, lambda _: True)
        listener.close()

    play(scenario)


def test_acceptor_that_refuses_pauses_and_loses_no_connection(play: Play) -> None:
    async def scenario(network: Network) -> None:
        accepted: list[Socket] = []
        everyone = asyncio.Event()

        def accept(socket: Socket) -> bool:
            accepted.append(socket)
            if len(accepted) == 3:
                everyone.set()
            return False

        listener = await network.listen("127.0.0.1", 0, accept)
        clients = [await network.connect("127.0.0.1", listener.port) for _ in range(3)]
        await everyone.wait()
        listener.close()
        for socket in [*clients, *accepted]:
            socket.close()

    play(scenario)
