"""Calls of receivers: connections are kept, answers are bounded, addresses are checked for each connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from penstock.config.address_rules import AddressRules, parse_address_rules
from penstock.threads import ThreadPools
from penstock.webhooks import http_caller
from penstock.webhooks.http_caller import HttpCaller
from penstock.webhooks.http_connection import CallFailed
from penstock.webhooks.receiver_url import parse_url
from support.certificates import TestAuthority
from support.webhook_receivers import Received, answer, hang, receiving

HEADERS = [("content-type", "text/plain"), ("webhook-id", "msg_1")]
LOOPBACK = parse_address_rules("127.0.0.0/8")


@asynccontextmanager
async def calling(rules: AddressRules = LOOPBACK) -> AsyncIterator[HttpCaller]:
    threads = ThreadPools()
    caller = HttpCaller(lambda: rules, threads)
    try:
        yield caller
    finally:
        caller.close()
        threads.close()


@pytest.fixture(autouse=True, params=["asyncio", "uvloop"])
def chosen_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Event loop of a broker: each of the two kinds, because their transports differ."""
    made = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}[request.param]
    monkeypatch.setattr(f"{__name__}.new_loop", made)


def new_loop() -> asyncio.AbstractEventLoop:
    raise AssertionError("replaced by the fixture")


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(bounded())


def test_request_arrives_whole_and_connection_is_kept() -> None:
    async def scenario() -> None:
        async with calling() as caller, receiving(answer(204)) as server:
            for number in range(5):
                found = await caller.call(parse_url(server.url), HEADERS, b"x" * 100_000 * number, 10)
                assert found.status == 204
            assert server.connections == 1
            last = server.received[-1]
            assert (last.target, len(last.body)) == ("/hook", 400_000)
            assert last.headers["host"] == f"127.0.0.1:{server.port}"
            assert last.headers["webhook-id"] == "msg_1"

    run(scenario)


def test_calls_at_the_same_time_have_connections_of_their_own() -> None:
    async def scenario() -> None:
        async with calling() as caller, receiving(answer(200, body=b"thanks")) as server:
            receiver = parse_url(server.url)
            for _ in range(2):
                answers = await asyncio.gather(*(caller.call(receiver, HEADERS, b"", 10) for _ in range(8)))
                assert {each.status for each in answers} == {200}
            assert server.connections == 8

    run(scenario)


def test_answer_has_retry_after() -> None:
    async def scenario() -> None:
        async with calling() as caller, receiving(answer(429, "Retry-After: 7")) as server:
            found = await caller.call(parse_url(server.url), HEADERS, b"", 10)
            assert (found.status, found.retry_after) == (429, "7")

    run(scenario)


def test_connection_that_was_closed_meanwhile_is_replaced() -> None:
    async def close_after(received: Received, writer: asyncio.StreamWriter) -> None:
        await answer(200)(received, writer)
        await writer.drain()
        writer.close()

    async def scenario() -> None:
        async with calling() as caller, receiving(close_after) as server:
            for _ in range(3):
                assert (await caller.call(parse_url(server.url), HEADERS, b"", 10)).status == 200
            assert server.connections == 3

    run(scenario)


async def trickle(received: Received, writer: asyncio.StreamWriter) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n\r\n":
        writer.write(bytes([byte]))
        await asyncio.sleep(60)


async def endless_headers(received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x: " + b"y" * 10_000 + b"\r\n")
        await writer.drain()


async def nonsense(received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 smtp.example.com ESMTP\r\n")


async def close_at_once(received: Received, writer: asyncio.StreamWriter) -> None:
    writer.close()


@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        (hang, "no response within"),
        (trickle, "no response within"),
        (endless_headers, "longer than"),
        (nonsense, "not HTTP"),
        (close_at_once, "closed the connection"),
    ],
)
def test_hostile_receiver_fails_its_own_calls(
    respond: Callable[[Received, asyncio.StreamWriter], Awaitable[None]], reason: str
) -> None:
    async def scenario() -> None:
        async with calling() as caller, receiving(respond) as server, receiving(answer(200)) as honest:
            failing = asyncio.create_task(caller.call(parse_url(server.url), HEADERS, b"", 0.5))
            assert (await caller.call(parse_url(honest.url), HEADERS, b"", 10)).status == 200
            with pytest.raises(CallFailed, match=reason):
                await failing

    run(scenario)


def test_huge_body_is_not_read() -> None:
    sent = 0

    async def huge(received: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")
        for _ in range(1024):
            writer.write(b"x" * 1024 * 1024)
            await writer.drain()
            sent += 1

    async def scenario() -> None:
        async with calling() as caller, receiving(huge) as server:
            assert (await caller.call(parse_url(server.url), HEADERS, b"", 10)).status == 200
            assert (await caller.call(parse_url(server.url), HEADERS, b"", 10)).status == 200
            assert server.connections == 2
        assert sent < 100

    run(scenario)


@pytest.mark.parametrize("status", [307, 308])
def test_redirect_is_followed_with_the_same_body(status: int) -> None:
    async def scenario() -> None:
        async with calling() as caller, receiving(answer(200)) as target:
            async with receiving(answer(status, f"location: {target.url}")) as server:
                assert (await caller.call(parse_url(server.url), HEADERS, b"body", 10)).status == 200
            assert [each.body for each in target.received] == [b"body"]

    run(scenario)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://169.254.169.254/latest/meta-data", "private, local or reserved"),
        ("http://10.0.0.1/", "private, local or reserved"),
        ("http://[::ffff:10.0.0.1]/", "private, local or reserved"),
        ("file:///etc/passwd", "redirect refused"),
        ("http://user:secret@example.com/", "redirect refused"),
        ("", "more than 3 redirects"),
    ],
)
def test_redirect_to_a_refused_place_fails(location: str, reason: str) -> None:
    async def scenario() -> None:
        async with calling() as caller, receiving(answer(307, f"location: {location}")) as server:
            with pytest.raises(CallFailed, match=reason):
                await caller.call(parse_url(server.url), HEADERS, b"", 10)

    run(scenario)


def test_name_that_changes_its_address_is_checked_for_each_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved: list[Sequence[str]] = [["10.0.0.1", "127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"]]
    monkeypatch.setattr(http_caller, "resolve_host", lambda host, port: resolved.pop(0))

    async def scenario() -> None:
        async with calling() as caller, receiving(answer(200, "connection: close")) as server:
            receiver = parse_url(f"http://rebinding.example:{server.port}/")
            assert (await caller.call(receiver, HEADERS, b"", 10)).status == 200
            assert server.received[0].headers["host"] == f"rebinding.example:{server.port}"
            for _ in range(2):
                with pytest.raises(CallFailed, match="private, local or reserved"):
                    await caller.call(receiver, HEADERS, b"", 10)
            assert server.connections == 1

    run(scenario)


def test_loopback_is_refused_by_default() -> None:
    async def scenario() -> None:
        async with calling(AddressRules()) as caller, receiving(answer(200)) as server:
            for host in ("127.0.0.1", "localhost", "0x7f.1", "2130706433"):
                receiver = parse_url(f"http://{host}:{server.port}/")
                with pytest.raises(CallFailed, match="private, local or reserved"):
                    await caller.call(receiver, HEADERS, b"", 10)
                with pytest.raises(CallFailed):
                    await caller.check(receiver)
            assert server.connections == 0

    run(scenario)


def test_unknown_name_fails_the_call_and_passes_the_check() -> None:
    async def scenario() -> None:
        async with calling() as caller:
            receiver = parse_url("http://no-such-host.invalid/")
            await caller.check(receiver)
            with pytest.raises(CallFailed, match=r"no-such-host\.invalid"):
                await caller.call(receiver, HEADERS, b"", 20)

    run(scenario)


def test_receiver_of_a_private_authority_needs_its_certificate(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(authority.issue("receiver"))
    trusted: list[str | None] = [None]

    async def scenario() -> None:
        threads = ThreadPools()
        caller = HttpCaller(lambda: LOOPBACK, threads, lambda: trusted[0])
        async with receiving(answer(200), serving) as server:
            receiver = parse_url(server.url.replace("http:", "https:"))
            with pytest.raises(CallFailed, match="certificate verify failed"):
                await caller.call(receiver, HEADERS, b"1", 10)
            trusted[0] = str(tmp_path / "missing.pem")
            with pytest.raises(CallFailed, match=r"webhook.ssl.ca.location .* cannot be read"):
                await caller.call(receiver, HEADERS, b"2", 10)
            trusted[0] = str(authority.file)
            assert (await caller.call(receiver, HEADERS, b"3", 10)).status == 200
            assert [each.body for each in server.received] == [b"3"]
        caller.close()
        threads.close()

    run(scenario)
