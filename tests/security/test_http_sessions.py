"""Access tokens, sessions of browsers and tickets for HTTP, at a broker and at a gateway of its own."""

from __future__ import annotations

import asyncio
import json
import ssl
from functools import partial
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path

import pytest
from test_http_users import basic, secure
from test_on_behalf import own_gateway, own_user
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from penstock.gateway.http.users import COOKIE, session_cookie, take_ticket
from penstock.security.access_token import AccessToken, TokenRecord, parse_token
from penstock.security.http_session import read_session, session_key, sign_session
from support.certificates import TestAuthority
from support.eventually import eventually_async
from support.harness import Harness
from support.secure_brokers import add_user, address_of, delete_user, in_thread
from support.whole_brokers import Brokers, run

KEY = session_key("secret of the cluster")


def test_session_is_valid_with_its_key_alone() -> None:
    cookie = sign_session(KEY, "alice", "credential", 5_000, b"n" * 16)
    login = read_session(KEY, cookie)
    assert login is not None
    assert (login.user, login.credential, login.expires_ms, len(login.csrf)) == (
        "alice",
        "credential",
        5_000,
        22,
    )
    assert read_session(session_key("another"), cookie) is None


@pytest.mark.parametrize("text", ["", ".", "a", "a.b", "é.é", "x" * 5_000, "W10." + "A" * 43])
def test_malformed_session_is_refused(text: str) -> None:
    assert read_session(KEY, text) is None


def test_changed_session_is_refused() -> None:
    cookie = sign_session(KEY, "alice", "credential", 5_000, b"n" * 16)
    for place in range(len(cookie)):
        other = "A" if cookie[place] != "A" else "B"
        changed = cookie[:place] + other + cookie[place + 1 :]
        login = read_session(KEY, changed)
        # The last character of base64 has unused bits: the same bytes may have two texts.
        assert login is None or login == read_session(KEY, cookie)


@pytest.mark.parametrize("text", ["", "pst_", "pst_a.b", "pst_a.b.c.d", "pst_é.b.c", "bearer", "pst_YQ.b.c"])
def test_malformed_token_is_no_token(text: str) -> None:
    assert parse_token(text) is None


def test_token_survives_its_text() -> None:
    token = AccessToken("ålice.b", "0123456789abcdef", bytes(range(32)))
    assert parse_token(token.text()) == token
    assert "secret" not in repr(token)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b"__Host-penstock=abc.def", "abc.def"),
        (b"a=b; __Host-penstock=abc.def; c=d", "abc.def"),
        (b"a=__Host-penstock", ""),
        (b"x__Host-penstock=abc", ""),
        (b'a="' + b"\\" * 50_000 + b'"', ""),
        (b"", ""),
    ],
    ids=["alone", "among others", "as a value", "end of a name", "long", "none"],
)
def test_cookie_of_the_session_is_found(header: bytes, found: str) -> None:
    assert session_cookie({b"cookie": header}) == found


def test_ticket_is_taken_out_of_the_query() -> None:
    assert take_ticket(b"from=latest&ticket=1.abc&partition=0") == ("1.abc", b"from=latest&partition=0")
    assert take_ticket(b"from=latest") == ("", b"from=latest")


class Browser:
    """HTTPS client that sends the headers it is given, and returns the whole response."""

    def __init__(self, port: int, authority: TestAuthority) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(authority.file))

    async def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: object = None
    ) -> tuple[int, dict[str, str], bytes]:
        return await in_thread(partial(self._ask, method, path, headers or {}, body))

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: object
    ) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPSConnection("127.0.0.1", self._port, timeout=20, context=self._context)
        try:
            content = None if body is None else json.dumps(body)
            more = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, content, {**headers, **more})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    async def log_in(self, user: str, password: str) -> tuple[dict[str, str], str]:
        """Headers with the cookie of a new session, and its CSRF token."""
        found = await self.ask("POST", "/v1/session", None, {"user": user, "password": password})
        assert found[0] == 200, found
        cookie = found[1]["set-cookie"]
        for attribute in ("Secure", "HttpOnly", "SameSite=Strict", "Path=/"):
            assert attribute in cookie
        assert cookie.startswith(COOKIE + "=")
        return {"Cookie": cookie.partition(";")[0]}, json.loads(found[2])["csrf"]

    def stream(self, path: str) -> tuple[HTTPSConnection, HTTPResponse]:
        connection = HTTPSConnection("127.0.0.1", self._port, timeout=20, context=self._context)
        connection.request("GET", path)
        return connection, connection.getresponse()


async def start(brokers: Brokers, authority: TestAuthority) -> tuple[Harness, Browser]:
    harness = await brokers.start(1)
    await add_user(harness, "alice", "secret")
    return harness, Browser(brokers.running[1].http_port, authority)


def test_browser_session_authenticates_http_requests(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness, browser = await start(brokers, authority)
        wrong = await browser.ask("POST", "/v1/session", None, {"user": "alice", "password": "guess"})
        assert (wrong[0], "set-cookie" in wrong[1]) == (401, False)
        # A browser must not ask for a password itself where the page has a login of its own.
        assert wrong[1]["www-authenticate"].startswith("Session")
        from_page = await browser.ask("GET", "/v1/session", {"X-Penstock-Csrf": ""})
        assert (from_page[0], from_page[1]["www-authenticate"]) == (401, 'Session realm="penstock"')
        cookie, csrf = await browser.log_in("alice", "secret")
        shown = await browser.ask("GET", "/v1/session", cookie)
        assert (shown[0], json.loads(shown[2])["user"], json.loads(shown[2])["csrf"]) == (200, "alice", csrf)
        topic = {"name": "orders", "partitions": 1}
        for headers, status in (
            (cookie, 403),
            ({**cookie, "X-Penstock-Csrf": "x" * 22}, 403),
            ({**cookie, "X-Penstock-Csrf": csrf, "Origin": "https://evil.example"}, 403),
            ({"X-Penstock-Csrf": csrf}, 401),
            ({**cookie, "X-Penstock-Csrf": csrf}, 201),
        ):
            assert (await browser.ask("POST", "/v1/topics", headers, topic))[0] == status, headers
        # A login from a page of another origin would put its victim into a session of the attacker.
        body = {"user": "alice", "password": "secret"}
        assert (await browser.ask("POST", "/v1/session", {"Origin": "https://evil.example"}, body))[0] == 403
        closed = await browser.ask("DELETE", "/v1/session", {**cookie, "X-Penstock-Csrf": csrf})
        assert (closed[0], "Max-Age=0" in closed[1]["set-cookie"]) == (204, True)
        assert (await browser.ask("GET", "/v1/session", cookie))[0] == 401
        cookie, _ = await browser.log_in("alice", "secret")
        # A change of the user ends its sessions.
        await add_user(harness, "alice", "other")
        assert (await browser.ask("GET", "/v1/session", cookie))[0] == 401

    run(tmp_path, scenario, **secure(authority))


def test_page_of_another_origin_opens_no_websocket_with_a_session(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        _, browser = await start(brokers, authority)
        cookie, _ = await browser.log_in("alice", "secret")
        port = brokers.running[1].http_port

        def stream(origin: str) -> connect:
            context = ssl.create_default_context(cafile=str(authority.file))
            place = f"wss://127.0.0.1:{port}/receive/stream?user_id=alice"
            return connect(place, ssl=context, additional_headers=cookie, origin=Origin(origin))

        for origin in (
            "https://evil.example",
            "null",
            f"http://127.0.0.1:{port}",
            f"https://127.0.0.1:{port + 1}",
        ):
            with pytest.raises(InvalidStatus) as refused:
                async with stream(origin):
                    pass
            assert refused.value.response.status_code == 403, origin
        async with stream(f"https://127.0.0.1:{port}") as socket:
            await socket.ping()

    run(tmp_path, scenario, **secure(authority))


@pytest.mark.slow
def test_logout_ends_one_session_with_its_tickets_and_streams(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        _, first = await start(brokers, authority)
        await brokers.start(2)
        second = Browser(brokers.running[2].http_port, authority)
        await eventually_async(lambda: "alice" in brokers.running[2]._metadata.image.users)
        cookie, csrf = await first.log_in("alice", "secret")
        changing = {**cookie, "X-Penstock-Csrf": csrf}
        other, _ = await first.log_in("alice", "secret")
        ticket = json.loads((await first.ask("POST", "/v1/session/tickets", changing))[2])["ticket"]
        waiting = asyncio.create_task(second.ask("GET", "/receive?user_id=alice&wait=60", cookie))
        gateway = brokers.running[2]._http._gateway
        assert gateway is not None
        await eventually_async(lambda: gateway.application.limits.open_requests == 1)
        assert (await first.ask("DELETE", "/v1/session", changing))[0] == 204

        async def has_ended() -> bool:
            return (await second.ask("GET", "/v1/session", cookie))[0] == 401

        await eventually_async(has_ended)
        assert (await waiting)[0] == 401
        for path, headers in (
            (f"/receive?user_id=alice&ticket={ticket}", {}),
            ("/v1/session", cookie),
        ):
            assert (await first.ask("GET", path, headers))[0] == 401
        for each in (first, second):
            assert (await each.ask("GET", "/v1/session", other))[0] == 200

    run(tmp_path, scenario, **secure(authority))


@pytest.mark.slow
def test_session_ends_in_time(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        _, browser = await start(brokers, authority)
        cookie, _ = await browser.log_in("alice", "secret")

        async def has_ended() -> bool:
            return (await browser.ask("GET", "/v1/session", cookie))[0] == 401

        await eventually_async(has_ended)

    run(tmp_path, scenario, http_session_lifetime_ms="1000", **secure(authority))


def test_session_and_ticket_of_one_broker_are_valid_at_another(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        _, first = await start(brokers, authority)
        await brokers.start(2)
        second = Browser(brokers.running[2].http_port, authority)
        await eventually_async(lambda: "alice" in brokers.running[2]._metadata.image.users)
        cookie, csrf = await first.log_in("alice", "secret")
        assert (await second.ask("GET", "/v1/topics", cookie))[0] == 200
        issued = await first.ask("POST", "/v1/session/tickets", {**cookie, "X-Penstock-Csrf": csrf})
        ticket = json.loads(issued[2])["ticket"]
        place = f"/receive?user_id=alice&ticket={ticket}"
        assert (await second.ask("GET", place))[0] == 200
        assert (await second.ask("GET", place))[0] == 401
        assert (await first.ask("GET", place))[0] == 401
        for other in ("9.abc", "x", "1.", ticket[:-1]):
            assert (await first.ask("GET", f"/receive?user_id=alice&ticket={other}"))[0] == 401, other
        # A ticket is for streams alone, so that it does not get into logs as a parameter of other requests.
        assert (await first.ask("GET", f"/v1/topics?ticket={ticket}"))[0] == 401

    run(tmp_path, scenario, **secure(authority))


def test_access_token_authenticates_http_requests(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness, browser = await start(brokers, authority)
        clock = harness.context.clock
        users = harness.context.administration.users
        token = AccessToken("alice", "a1", bytes(32))
        await users.add_token("alice", "a1", TokenRecord(token.digest, clock.now_ms()))
        old = AccessToken("alice", "a2", bytes(31) + b"x")
        await users.add_token("alice", "a2", TokenRecord(old.digest, 1, 2))

        async def status(each: AccessToken) -> int:
            headers = {"Authorization": f"Bearer {each.text()}"}
            return (await browser.ask("GET", "/v1/topics", headers))[0]

        assert await status(token) == 200
        assert await status(old) == 401
        assert await status(AccessToken("alice", "a1", bytes(31) + b"y")) == 401
        assert await status(AccessToken("bob", "a1", bytes(32))) == 401
        await add_user(harness, "alice", "other")
        assert await status(token) == 200  # a token outlives the password
        await users.set_disabled("alice", True)
        assert await status(token) == 401
        assert (await browser.ask("GET", "/v1/topics", {"Authorization": basic("alice", "other")}))[0] == 401
        await users.set_disabled("alice", False)
        assert await status(token) == 200
        await users.remove_token("alice", "a1")
        assert await status(token) == 401

    run(tmp_path, scenario, **secure(authority))


@pytest.mark.slow
def test_sessions_tickets_and_tokens_at_a_gateway_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = TestAuthority(tmp_path / "tls")
    own_user(monkeypatch, tmp_path, authority)

    async def scenario(brokers: Brokers) -> None:
        harness, at_broker = await start(brokers, authority)
        await add_user(harness, "gateway", "own")
        token = AccessToken("alice", "a1", bytes(32))
        await harness.context.administration.users.add_token("alice", "a1", TokenRecord(token.digest, 1))
        gateway = own_gateway(authority)
        place = await gateway.start([address_of(brokers, 1, "SASL_SSL")])
        try:
            browser = Browser(place.port, authority)
            assert (await browser.ask("POST", "/v1/session", None, {"user": "alice", "password": "x"}))[
                0
            ] == 401
            cookie, csrf = await browser.log_in("alice", "secret")
            for each in (browser, at_broker):
                assert (await each.ask("GET", "/v1/topics", cookie))[0] == 200
            bearer = {"Authorization": f"Bearer {token.text()}"}
            assert (await browser.ask("GET", "/v1/topics", bearer))[0] == 200
            changing = {**cookie, "X-Penstock-Csrf": csrf}
            issued = json.loads((await browser.ask("POST", "/v1/session/tickets", changing))[2])
            path = f"/receive?user_id=alice&ticket={issued['ticket']}"
            assert [(await each.ask("GET", path))[0] for each in (at_broker, browser)] == [200, 401]
            waiting = asyncio.create_task(browser.ask("GET", "/receive?user_id=alice&wait=60", cookie))
            served = gateway._service._gateway
            assert served is not None
            await eventually_async(lambda: served.application.limits.open_requests == 1)
            brief, csrf = await browser.log_in("alice", "secret")
            assert (await browser.ask("DELETE", "/v1/session", {**brief, "X-Penstock-Csrf": csrf}))[0] == 204
            for each in (browser, at_broker):
                assert (await each.ask("GET", "/v1/topics", brief))[0] == 401
            await delete_user(harness, "alice")
            assert (await waiting)[0] == 401
            assert (await browser.ask("GET", "/v1/topics", cookie))[0] == 401
        finally:
            await gateway.stop()

    run(tmp_path, scenario, gateway_users="User:gateway", **secure(authority))


@pytest.mark.slow
def test_stream_ends_with_its_user(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness, browser = await start(brokers, authority)
        await harness.create("orders")
        cookie, csrf = await browser.log_in("alice", "secret")
        issued = await browser.ask("POST", "/v1/session/tickets", {**cookie, "X-Penstock-Csrf": csrf})
        ticket = json.loads(issued[2])["ticket"]
        opened = await in_thread(partial(browser.stream, f"/v1/topics/orders/events?ticket={ticket}"))
        connection, response = opened
        assert response.status == 200
        waiting = asyncio.create_task(browser.ask("GET", "/receive?user_id=alice&wait=60", cookie))
        gateway = brokers.running[1]._http._gateway
        assert gateway is not None
        await eventually_async(lambda: gateway.application.limits.open_requests == 2)
        await delete_user(harness, "alice")
        await in_thread(response.read)  # the stream has an end now
        connection.close()
        assert (await waiting)[0] == 401

    run(tmp_path, scenario, **secure(authority))
