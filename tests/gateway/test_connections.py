"""HTTP connections above the limits: limits by address, eviction, and the reserve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from push_stage import Stage, on_stage
from test_push_events import ORDERS, create
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from penstock.config import BrokerConfig
from penstock.errors import ConfigError
from penstock.gateway.http import websocket_connection
from penstock.gateway.http.connection_table import (
    RESERVED_CONNECTIONS,
    ConnectionTable,
    RefusedConnection,
    client_of,
)
from support.eventually import eventually_async
from support.whole_brokers import Brokers


class Fake:
    def __init__(self, address: str, *, idle: bool = False, waiting: bool = True) -> None:
        self.address = address
        self.is_idle = idle
        self.is_waiting = waiting
        self.is_evicted = False

    def evict(self) -> None:
        self.is_evicted = True


def admitted(table: ConnectionTable, *connections: Fake) -> list[Fake]:
    for each in connections:
        assert table.admit(each) is None
    return list(connections)


def refused(table: ConnectionTable, connection: Fake) -> RefusedConnection:
    found = table.admit(connection)
    assert found is not None
    return found


def test_one_address_gets_a_quarter_of_the_connections() -> None:
    table = ConnectionTable(8)
    admitted(table, Fake("a"), Fake("a"))
    assert refused(table, Fake("a")).status == 429
    admitted(table, *(Fake(address) for address in "bbccdd"))


def test_an_address_at_its_limit_loses_its_oldest_idle_connection() -> None:
    table = ConnectionTable(8)
    waiting, idle = admitted(table, Fake("a"), Fake("a", idle=True))
    admitted(table, Fake("a"))
    assert (waiting.is_evicted, idle.is_evicted) == (False, True)


def test_the_greediest_address_loses_its_oldest_waiting_connection() -> None:
    table = ConnectionTable(6, 3)
    connections = admitted(table, *(Fake(address) for address in "bbaaac"))
    admitted(table, Fake("d"))
    assert [each.is_evicted for each in connections] == [False, False, True, False, False, False]
    assert table.evictions == 1


def test_connection_with_request_in_progress_is_not_evicted() -> None:
    table = ConnectionTable(4, 4)
    working = admitted(table, *(Fake("a", waiting=False) for _ in range(4)))
    assert refused(table, Fake("b")).status == 503
    assert not any(each.is_evicted for each in working)


def test_address_with_fewer_connections_is_not_evicted() -> None:
    table = ConnectionTable(4, 4)
    admitted(table, *(Fake(address) for address in "abcd"))
    assert refused(table, Fake("e")).status == 503
    assert refused(table, Fake("a")).status == 503


def test_an_idle_connection_of_any_address_makes_room() -> None:
    table = ConnectionTable(4, 4)
    *_, idle = admitted(table, Fake("a"), Fake("b"), Fake("c"), Fake("d", idle=True))
    admitted(table, Fake("e"))
    assert idle.is_evicted


def test_trusted_proxies_have_no_limit_of_their_own() -> None:
    table = ConnectionTable(8, trusted=["10.0.0.0/8", "192.168.1.1"])
    proxied = admitted(table, *(Fake("10.1.2.3") for _ in range(7)), Fake("192.168.1.1"))
    assert refused(table, Fake("1.2.3.4")).status == 503
    assert not any(each.is_evicted for each in proxied)


def test_ipv6_counts_by_network_and_mapped_addresses_as_ipv4() -> None:
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:1") != client_of("2001:db8:0:1::1")
    assert client_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert client_of("fe80::1%eth0") == client_of("fe80::2")
    table = ConnectionTable(8, trusted=["2001:db8::/32"])
    admitted(table, *(Fake(f"2001:db8::{number}") for number in range(8)))


def test_reserve_is_bounded_and_keeps_the_newest() -> None:
    table = ConnectionTable(4, 1)
    admitted(table, *(Fake(address) for address in "abcd"))
    late = [Fake(str(number)) for number in range(RESERVED_CONNECTIONS + 3)]
    for each in late:
        refused(table, each)
    assert [each.is_evicted for each in late] == [True] * 3 + [False] * RESERVED_CONNECTIONS
    of_one = [Fake("a") for _ in range(20)]
    for each in of_one:
        refused(table, each)
    assert [each.is_evicted for each in of_one].count(False) == 8


def test_removed_connection_frees_its_place() -> None:
    table = ConnectionTable(4, 1)
    for _ in range(20):
        one, two = Fake("a"), Fake("a")
        admitted(table, one)
        refused(table, two)
        socket = Fake("a")
        table.replace(one, socket)
        table.remove(socket)
        table.remove(one)
        table.remove(two)
    assert not table._by_address
    assert not table._reserve


def test_trusted_proxies_may_be_networks() -> None:
    assert BrokerConfig({"gateway.trusted.proxies": "10.0.0.0/8, ::1"})
    with pytest.raises(ConfigError):
        BrokerConfig({"gateway.trusted.proxies": "proxy.example"})


# --- real connections, from several addresses of this machine


class Waiting:
    """A connection from an address of its own, with a request in progress."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer


LONG_POLL = "GET /receive?user_id=nobody&wait=60 HTTP/1.1\r\nHost: x\r\n\r\n"
EVENTS = f"GET /v1/topics/{ORDERS}/events HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = (
    f"GET /v1/topics/{ORDERS}/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
SLOW_BODY = "POST /send HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{"


async def open_from(stage: Stage, address: str, request: str) -> Waiting:
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port, local_addr=(address, 0))
    writer.write(request.encode())
    return Waiting(reader, writer)


async def ask_from(stage: Stage, address: str, path: str) -> tuple[int, str]:
    """Return the status and the text of the response."""
    asked = await open_from(stage, address, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(20):
        raw = (await asked.reader.read()).decode()
    asked.writer.close()
    return int(raw.split(" ", 2)[1]), raw


@asynccontextmanager
async def crowd(
    stage: Stage, request: str, addresses: int = 4, each: int = 10
) -> AsyncIterator[list[Waiting]]:
    """Open waiting connections of several addresses, oldest first."""
    assert stage._service._server is not None
    table = stage._service._server.table
    crowd = []
    try:
        for number in range(addresses * each):
            crowd.append(await open_from(stage, f"127.0.0.{2 + number % addresses}", request))
        await eventually_async(
            lambda: sum(c.is_waiting for own in table._by_address.values() for c in own) == len(crowd)
        )
        yield crowd
    finally:
        for waiting in crowd:
            waiting.writer.close()


@pytest.mark.parametrize(
    "request_text", [LONG_POLL, EVENTS, UPGRADE, SLOW_BODY], ids=["polls", "events", "sockets", "bodies"]
)
def test_waiting_connections_of_few_addresses_do_not_block_others(tmp_path: Path, request_text: str) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        async with crowd(stage, request_text) as waiting:
            assert (await ask_from(stage, "127.0.0.99", "/health"))[0] == 200
            assert (await ask_from(stage, "127.0.0.99", "/metrics"))[0] == 200
            assert (await ask_from(stage, "127.0.0.99", "/v1/topics"))[0] == 200
            async with asyncio.timeout(20):
                ended = await waiting[0].reader.read()
            if request_text in (LONG_POLL, SLOW_BODY):
                assert ended.startswith(b"HTTP/1.1 503")
                assert b"retry-after" in ended
            # A connection over the limit gets 429, and may still ask for the health.
            status, text = await ask_from(stage, "127.0.0.3", "/v1/topics")
            assert (status, json.loads(text.partition("\r\n\r\n")[2])["retriable"]) == (429, True)
            assert (await ask_from(stage, "127.0.0.3", "/health"))[0] == 200

    on_stage(tmp_path, scenario, gateway_max_connections="40")


def test_health_is_answered_when_every_address_has_one_connection(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        async with crowd(stage, LONG_POLL, addresses=8, each=1):
            assert (await ask_from(stage, "127.0.0.99", "/health?x=1"))[0] in (200, 400)
            assert (await ask_from(stage, "127.0.0.99", "/health"))[0] == 200
            assert (await ask_from(stage, "127.0.0.99", "/v1/topics"))[0] == 503

    on_stage(tmp_path, scenario, gateway_max_connections="8")


def test_trusted_proxy_may_take_all_connections(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        async with crowd(stage, LONG_POLL, addresses=1, each=30):
            assert (await ask_from(stage, "127.0.0.2", "/v1/topics"))[0] == 200

    on_stage(tmp_path, scenario, gateway_max_connections="40", gateway_trusted_proxies="127.0.0.2")


def test_evicted_websocket_gets_close_code_1013(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        url = f"ws://127.0.0.1:{stage.port}/v1/topics/{ORDERS}/stream"
        async with connect(url) as first, connect(url) as second:
            assert (await ask_from(stage, "127.0.0.9", "/v1/topics"))[0] == 200
            with pytest.raises(ConnectionClosed):
                async with asyncio.timeout(20):
                    await first.recv()
            assert first.close_code == 1013
            await second.ping()

    on_stage(tmp_path, scenario, gateway_max_connections="2", gateway_client_max_connections="2")


# --- floods of frames


def masked(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    return bytes([(0x80 if fin else 0) | opcode, 0x80 | len(payload)]) + bytes(4) + payload


PING, CONTINUATION, TEXT = 9, 0, 1
STORMS = {
    "pings": masked(PING) * 50_000,
    "pongs": masked(10) * 50_000,
    "fragments": masked(TEXT, b"{", fin=False) + masked(CONTINUATION, fin=False) * 50_000,
}


@pytest.mark.parametrize("storm", STORMS)
def test_flood_of_control_frames_closes_the_connection(tmp_path: Path, storm: str) -> None:
    parsed: list[int] = []

    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        stormy = await open_from(stage, "127.0.0.2", UPGRADE)
        await stormy.reader.readuntil(b"\r\n\r\n")
        protocol = stage.connections[0].conn
        receive_data = protocol.receive_data

        def counted(data: bytes) -> None:
            parsed.append(len(data))
            receive_data(data)

        protocol.receive_data = counted
        stormy.writer.write(STORMS[storm])
        with suppress(ConnectionError):
            async with asyncio.timeout(20):
                await stormy.reader.read()
        stormy.writer.close()
        assert protocol.close_sent.code == 1008
        assert sum(parsed) <= 2 * websocket_connection.PIECE_BYTES, "the rest is not parsed"

    on_stage(tmp_path, scenario)


def test_few_pings_and_a_large_message_are_accepted(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, "one")
        url = f"ws://127.0.0.1:{stage.port}/v1/topics/{ORDERS}/stream?from=earliest"
        async with connect(url) as client:
            for _ in range(5):
                await asyncio.wait_for(await client.ping(), 20)
            await client.send(" " * 900_000 + '{"credit": 1}')
            async with asyncio.timeout(20):
                assert json.loads(await client.recv())["value"] == "one"

    on_stage(tmp_path, scenario)


def test_flood_of_messages_does_not_starve_other_clients(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        flooding = await open_from(stage, "127.0.0.2", UPGRADE)
        await flooding.reader.readuntil(b"\r\n\r\n")
        [connection] = stage.connections
        longest = 0
        receive_data = connection.conn.receive_data

        def count(data: bytes) -> None:
            nonlocal longest
            longest = max(longest, len(data))
            receive_data(data)

        connection.conn.receive_data = count
        flooding.writer.write(masked(TEXT, b'{"credit":1}') * 20_000)
        for _ in range(20):
            assert (await stage.http.get("/health")).status_code == 200
        assert longest <= websocket_connection.PIECE_BYTES
        flooding.writer.close()

    on_stage(tmp_path, scenario)
