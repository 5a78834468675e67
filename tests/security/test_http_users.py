"""HTTP with TLS and users, at the gateway of a broker whose own listener has SASL and TLS."""

from __future__ import annotations

import base64
import ssl
from functools import partial
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from penstock.cli.gateway_process import GatewayProcess
from penstock.clock import SystemClock
from penstock.config import BrokerConfig
from penstock.observability.logs import Logger
from support.certificates import TestAuthority
from support.secure_brokers import add_user, address_of, delete_user, in_thread, named
from support.whole_brokers import Brokers, run


class HttpsClient:
    def __init__(self, port: int, authority: TestAuthority) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(authority.file))

    def ask(
        self, method: str, path: str, authorization: str | None = None, body: str | None = None
    ) -> tuple[int, str | None, bytes]:
        """Status, challenge and body of a response."""
        headers = {} if authorization is None else {"Authorization": authorization}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = HTTPSConnection("127.0.0.1", self._port, timeout=20, context=self._context)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.getheader("WWW-Authenticate"), response.read()
        finally:
            connection.close()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def secure(authority: TestAuthority) -> dict[str, str]:
    return {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "http_port": "0",
        "http_ssl_enable": "true",
        "http_authentication_enable": "true",
        **named(authority.settings()),
    }


def test_http_knows_the_users_of_the_cluster(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "alice", "secret")
        client = HttpsClient(brokers.running[1].http_port, authority)
        right, body = basic("alice", "secret"), '{"to_user": "bob", "from_user": "alice", "message": "hi"}'

        def ask(*arguments: str | None) -> tuple[int, str | None, bytes]:
            return client.ask(*arguments)  # type: ignore[arg-type]

        assert (await in_thread(partial(ask, "GET", "/health")))[0] == 200
        assert (await in_thread(partial(ask, "GET", "/metrics")))[0] == 200
        for path in ("/v1/topics", "/receive?user_id=bob", "/v1/cluster"):
            status, challenge, _ = await in_thread(partial(ask, "GET", path))
            assert (status, (challenge or "").startswith("Basic")) == (401, True), path
        assert (await in_thread(partial(ask, "GET", "/v1/topics", right)))[0] == 200
        status, _, answer = await in_thread(partial(ask, "POST", "/send", right, body))
        assert status in (200, 201), answer
        assert (await in_thread(partial(ask, "POST", "/send", None, body)))[0] == 401
        wrong = await in_thread(partial(ask, "GET", "/v1/topics", basic("alice", "guess")))
        unknown = await in_thread(partial(ask, "GET", "/v1/topics", basic("nobody", "guess")))
        assert wrong[0] == unknown[0] == 401
        assert len(wrong[2]) == len(unknown[2])
        await delete_user(harness, "alice")
        assert (await in_thread(partial(ask, "GET", "/v1/topics", right)))[0] == 401

    run(tmp_path, scenario, **secure(authority))


@pytest.mark.parametrize(
    "authorization",
    ["", "Basic", "Basic ???", "Basic YWxpY2U=", "Bearer x", "Digest x", "Basic OnNlY3JldA=="],
)
def test_malformed_credentials_are_refused(tmp_path: Path, authorization: str) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        await add_user(await brokers.start(1), "alice", "secret")
        client = HttpsClient(brokers.running[1].http_port, authority)
        status, _, body = await in_thread(partial(client.ask, "GET", "/v1/topics", authorization))
        assert status == 401
        assert b"secret" not in body

    run(tmp_path, scenario, **secure(authority))


def test_client_certificate_is_a_user(tmp_path: Path) -> None:
    authority, foreign = TestAuthority(tmp_path / "tls"), TestAuthority(tmp_path / "foreign")

    async def scenario(brokers: Brokers) -> None:
        await brokers.start(1)
        port = brokers.running[1].http_port

        def ask(certificate: Path | None) -> tuple[int, bytes]:
            client = HttpsClient(port, authority)
            if certificate is not None:
                client._context.load_cert_chain(certificate)
            status, _, body = client.ask("GET", "/v1/session")
            return status, body

        status, body = await in_thread(lambda: ask(authority.issue("alice", ())))
        assert (status, b'"user":"alice"' in body) == (200, True)
        assert (await in_thread(lambda: ask(None)))[0] == 401
        context = ssl.create_default_context(cafile=str(authority.file))
        place = f"wss://127.0.0.1:{port}/receive/stream?user_id=alice"
        with pytest.raises(InvalidStatus) as refused:
            async with connect(place, ssl=context):
                pass
        assert refused.value.response.status_code == 401
        context.load_cert_chain(authority.issue("alice", ()))
        async with connect(place, ssl=context) as socket:
            await socket.ping()
        with pytest.raises(OSError):
            await in_thread(lambda: ask(foreign.issue("alice", ())))

    rules = {"ssl_principal_mapping_rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT", "ssl_client_auth": "requested"}
    own = {f"listener.name.http.{name.replace('_', '.')}": value for name, value in rules.items()}
    run(tmp_path, scenario, **secure(authority), **own)


def test_gateway_of_its_own_checks_users_at_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = TestAuthority(tmp_path / "tls")
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text("own\n")
    monkeypatch.setenv("PENSTOCK_CA", str(authority.file))
    monkeypatch.setenv("PENSTOCK_USER", "gateway")
    monkeypatch.setenv("PENSTOCK_PASSWORD_FILE", str(password))

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "gateway", "own")
        await add_user(harness, "alice", "secret")
        settings = {**authority.settings("gateway"), "http.port": "0", "http.ssl.enable": "true"}
        config = BrokerConfig({**settings, "http.authentication.enable": "true"})
        log = Logger(SystemClock(), lambda _: None, lambda *_: "")
        gateway = GatewayProcess(config, log, None)
        place = await gateway.start([address_of(brokers, 1, "SASL_SSL")])
        client = HttpsClient(place.port, authority)
        try:
            for authorization, status in (
                (None, 401),
                (basic("alice", "guess"), 401),
                (basic("nobody", "secret"), 401),
                (basic("alice", "secret"), 200),
                (basic("alice", "secret"), 200),
            ):
                found = await in_thread(partial(client.ask, "GET", "/v1/topics", authorization))
                assert found[0] == status, found
        finally:
            await gateway.stop()

    settings = {"listeners": "SASL_SSL://127.0.0.1:0", "gateway_users": "User:gateway"}
    run(tmp_path, scenario, **settings, **named(authority.settings()))
