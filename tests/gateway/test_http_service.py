from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.types import Receive, Scope, Send

from penstock.build import current_build
from penstock.gateway.health import BrokerState, Health, PartitionDamage
from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http.server import MAX_CONNECTIONS, HttpServer
from penstock.gateway.http.service import HttpService
from penstock.model import TopicPartition
from penstock.observability.alarms import Alarm, AlarmKind
from penstock.observability.metrics import BrokerMetrics
from penstock.threads import ThreadPools


class Answer:
    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        self.status = int(head.split(b" ")[1])
        self.headers = head.decode().lower()


async def get(port: int, path: str, method: str = "GET") -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    raw = await reader.read()
    writer.close()
    await writer.wait_closed()
    return Answer(raw)


class Fixture:
    def __init__(self) -> None:
        self.health = Health(BrokerState.SERVING)
        self.metrics = BrokerMetrics({0: "Produce"}, max_topics=10)
        self.threads = ThreadPools()
        self.service = HttpService(self.threads, self.metrics, lambda: self.health)
        self.port = 0


@asynccontextmanager
async def serving() -> AsyncIterator[Fixture]:
    fixture = Fixture()
    fixture.port = await fixture.service.start("127.0.0.1", 0)
    try:
        yield fixture
    finally:
        await fixture.service.stop()
        fixture.threads.close()


def served(test: Callable[[Fixture], Awaitable[None]]) -> None:
    async def run() -> None:
        async with serving() as fixture:
            await test(fixture)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("health", "status"),
    [
        (Health(BrokerState.SERVING), 200),
        (Health(BrokerState.SERVING, is_disk_full=True), 200),
        (Health(BrokerState.STARTING), 503),
        (Health(BrokerState.STOPPING), 503),
        (Health(BrokerState.SERVING, failed_logs=("orders-0",)), 503),
    ],
)
def test_health_shows_whether_the_broker_serves(health: Health, status: int) -> None:
    async def test(fixture: Fixture) -> None:
        fixture.health = health
        answer = await get(fixture.port, "/health")
        assert answer.status == status
        assert json.loads(answer.body) == {
            "status": str(health.state),
            "build": current_build(),
            "failed_logs": list(health.failed_logs),
            "failed_log_count": len(health.failed_logs),
            "disk_full": health.is_disk_full,
            "degraded": health.is_disk_full or bool(health.failed_logs),
            "damage": [],
            "damage_count": 0,
            "alarms": [],
            "alarm_count": 0,
        }

    served(test)


def test_health_shows_damage_and_alarms_and_stays_200() -> None:
    async def test(fixture: Fixture) -> None:
        name = TopicPartition("orders", 3)
        damage = PartitionDamage(name, 5, 9, "the CRC does not match")
        alarm = Alarm(AlarmKind.CORRUPT_FETCH, name, "why", 1_700_000_000_000)
        fixture.health = Health(BrokerState.SERVING, damage=(damage,), alarms=(alarm,) * 1000)
        answer = await get(fixture.port, "/health")
        body = json.loads(answer.body)
        assert answer.status == 200
        assert body["degraded"]
        assert body["damage"] == [
            {
                "topic": "orders",
                "partition": 3,
                "base_offset": 5,
                "end_offset": 9,
                "reason": "the CRC does not match",
            }
        ]
        assert (len(body["alarms"]), body["alarm_count"]) == (100, 1000)
        assert body["alarms"][0] == {
            "kind": "corrupt_fetch",
            "topic": "orders",
            "partition": 3,
            "detail": "why",
            "since": "2023-11-14T22:13:20.000Z",
        }

    served(test)


def test_many_failed_logs_are_counted_but_not_all_listed() -> None:
    async def test(fixture: Fixture) -> None:
        fixture.health = Health(BrokerState.SERVING, tuple(f"t-{number}" for number in range(1000)))
        body = json.loads((await get(fixture.port, "/health")).body)
        assert body["failed_log_count"] == 1000
        assert len(body["failed_logs"]) == 20

    served(test)


def test_metrics_are_current_prometheus_text() -> None:
    async def test(fixture: Fixture) -> None:
        fixture.metrics.requests[0].observe(0.01)
        answer = await get(fixture.port, "/metrics")
        assert answer.status == 200
        assert "content-type: text/plain; version=0.0.4" in answer.headers
        assert b'penstock_request_seconds_count{api="Produce"} 1.0' in answer.body

    served(test)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("POST", "/metrics", 405), ("GET", "/health/../etc", 404)],
)
def test_other_paths_are_refused(method: str, path: str, status: int) -> None:
    async def test(fixture: Fixture) -> None:
        assert (await get(fixture.port, path, method)).status == status

    served(test)


def test_bytes_that_are_not_http_get_400() -> None:
    async def test(fixture: Fixture) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", fixture.port)
        writer.write(b"\x00\x00\x00\x10garbage\r\n\r\n")
        assert b" 400 " in (await reader.read()).split(b"\r\n")[0]
        writer.close()
        assert (await get(fixture.port, "/health")).status == 200

    served(test)


def test_taken_port_raises_os_error() -> None:
    async def test(fixture: Fixture) -> None:
        other = HttpService(fixture.threads, fixture.metrics, lambda: fixture.health)
        with pytest.raises(OSError, match="address already in use"):
            await other.start("127.0.0.1", fixture.port)
        await other.stop()

    served(test)


def test_server_leaves_signals_to_the_broker() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def test(fixture: Fixture) -> None:
        assert signal.getsignal(signal.SIGTERM) is before

    served(test)


def test_stop_closes_keep_alive_connections() -> None:
    async def run() -> None:
        async with serving() as fixture:
            reader, writer = await asyncio.open_connection("127.0.0.1", fixture.port)
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        await asyncio.wait_for(reader.read(), 30)
        assert reader.at_eof()
        writer.close()

    asyncio.run(run())


def test_idle_connections_do_not_block_health_checks() -> None:
    async def test(fixture: Fixture) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", fixture.port) for _ in range(MAX_CONNECTIONS + 20)]
        for _, writer in idle[:50]:
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert (await get(fixture.port, "/health")).status == 200
        with suppress(ConnectionError):
            assert await idle[0][0].read() == b"", "the oldest made room"
        for _, writer in idle:
            writer.close()

    served(test)


def test_incomplete_request_head_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.http.server.IDLE_SECONDS", 0.05)

    async def test(fixture: Fixture) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", fixture.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.1 408")
        writer.close()

    served(test)


def test_response_in_progress_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a byte of a next request that is never completed, while this one is in progress."""
    monkeypatch.setattr("penstock.gateway.http.server.HEAD_SECONDS", 0.05)
    monkeypatch.setattr("penstock.gateway.http.server.SWEEP_SECONDS", 0.02)
    given_up = asyncio.Event()
    give_up = HttpConnection.give_up

    def noted(connection: HttpConnection, detail: str) -> None:
        give_up(connection, detail)
        given_up.set()

    monkeypatch.setattr(HttpConnection, "give_up", noted)

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"o", "more_body": True})
        await given_up.wait()
        await send({"type": "http.response.body", "body": b"k"})

    async def test() -> None:
        server = HttpServer(stream)
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        begun = await reader.readuntil(b"\r\n\r\no")
        writer.write(b"G")
        answer = Answer(begun + await asyncio.wait_for(reader.read(), 30))
        assert (answer.status, answer.body) == (200, b"ok")
        writer.close()
        await server.stop()

    asyncio.run(test())


def test_upgrade_request_with_other_method_is_served_as_it_is() -> None:
    async def test(fixture: Fixture) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", fixture.port)
        writer.write(b"POST /health HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert Answer(await asyncio.wait_for(reader.read(), 30)).status == 405
        writer.close()

    served(test)


def test_incomplete_body_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.http.server.BODY_SECONDS", 0.05)
    monkeypatch.setattr("penstock.gateway.http.server.SWEEP_SECONDS", 0.02)

    is_given_up = asyncio.Event()

    async def read_body(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            while (await receive())["more_body"]:
                pass
        except asyncio.CancelledError:
            is_given_up.set()

    async def test() -> None:
        server = HttpServer(read_body)
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        answer = Answer(await asyncio.wait_for(reader.read(), 30))
        assert answer.status == 408
        assert "connection: close" in answer.headers
        await asyncio.wait_for(is_given_up.wait(), 30)
        writer.close()
        await server.stop()

    asyncio.run(test())


@pytest.mark.slow
def test_used_connection_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.http.server.IDLE_SECONDS", 1.0)

    async def test(fixture: Fixture) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", fixture.port)
        deadline = asyncio.get_running_loop().time() + 2.5
        while asyncio.get_running_loop().time() < deadline:
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.readuntil(b"}")
        writer.close()

    served(test)
