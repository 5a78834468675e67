"""Connecting to a host with several addresses, which is refused only when all of them refuse."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import Socket, TcpNetwork
from support.broker_process import free_ports

Address = tuple[str, int]


def connect(monkeypatch: pytest.MonkeyPatch, answers: dict[Address, OSError]) -> None:
    """Connect to a host with these addresses, each with its own failure."""

    async def body() -> None:
        loop = asyncio.get_running_loop()

        async def getaddrinfo(*_: object, **__: object) -> list[tuple[int, int, int, str, Address]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in answers]

        async def sock_connect(_: socket.socket, address: Address) -> None:
            raise answers[address]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        monkeypatch.setattr(loop, "sock_connect", sock_connect)
        await TcpNetwork().connect("host", 9092)

    asyncio.run(body())


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
UNREACHABLE = OSError(errno.EHOSTUNREACH, "unreachable")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(REFUSED, REFUSED, REFUSED), (REFUSED, UNREACHABLE, UNREACHABLE), (UNREACHABLE, REFUSED, UNREACHABLE)],
)
def test_connection_is_refused_only_when_all_addresses_refuse(
    monkeypatch: pytest.MonkeyPatch, first: OSError, second: OSError, expected: OSError
) -> None:
    with pytest.raises(OSError) as failure:
        connect(monkeypatch, {("10.0.0.1", 9092): first, ("10.0.0.2", 9092): second})
    assert failure.value is expected


def test_port_without_listener_is_refused() -> None:
    [port] = free_ports(1)
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(TcpNetwork().connect("localhost", port))


@pytest.mark.parametrize("closes", ["client", "broker"])
def test_broker_connection_notices_its_end(closes: str) -> None:
    async def body() -> None:
        accepted: list[Socket] = []
        network = TcpNetwork()

        def accept(new: Socket) -> bool:
            accepted.append(new)
            return True

        listener = await network.listen("127.0.0.1", 0, accept)
        client = await BrokerConnection.connect(network, "127.0.0.1", listener.port)
        waiting = [asyncio.ensure_future(client.until_lost()) for _ in range(2)]
        async with asyncio.timeout(10):
            while not accepted:
                await asyncio.sleep(0)
            assert not any(each.done() for each in waiting)
            client.close() if closes == "client" else accepted[0].close()
            await asyncio.gather(*waiting)
            await client.until_lost()
        assert not client.is_connected
        listener.close()
        for each in accepted:
            each.close()

    asyncio.run(body())
