"""Requests of a gateway on behalf of its users: brokers authorize the user that the gateway names."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_http_users import HttpsClient, basic, secure

from penstock.cli.gateway_process import GatewayProcess
from penstock.clock import SystemClock
from penstock.config import BrokerConfig
from penstock.errors import ProtocolError
from penstock.net.acting import Actor, acting_for, of_gateway, own_requests, split_actor, with_actor
from penstock.observability.logs import Logger
from penstock.security.acl import AccessControlEntry, AclBinding, PatternType, Permission, ResourcePattern
from penstock.server.security import BROKER, Authorizer, Operation, Principal, ResourceType
from support.certificates import TestAuthority
from support.harness import Harness, serve
from support.secure_brokers import add_user, address_of, in_thread, named
from support.whole_brokers import Brokers, run

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


class UserRights(Authorizer):
    """Authorizer that allows users what is listed for them, and everything to brokers and gateways."""

    def __init__(self, **rights: set[tuple[str, str]]) -> None:
        self.rights = rights
        self.asked: list[tuple[str, str]] = []

    def authorize(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        self.asked.append((str(principal), host))
        if principal == BROKER:
            return True
        allowed = self.rights.get(principal.name, set())
        return (operation.name, name) in allowed or ("ALL", "*") in allowed


@given(NAMES, NAMES, NAMES)
def test_named_client_survives_the_client_id(own: str, user: str, host: str) -> None:
    assert split_actor(with_actor(own, Actor(user, host))) == (own, Actor(user, host))
    assert split_actor(with_actor(of_gateway(own), Actor(user, host))) == (own, Actor(user, host))
    assert split_actor(of_gateway(own)) == (own, None)
    assert with_actor(own, None) == own


@pytest.mark.parametrize("client_id", ["a\0b", "a\0b\0", "a\0\0b"])
def test_incomplete_user_on_behalf_is_malformed(client_id: str) -> None:
    with pytest.raises(ProtocolError):
        split_actor(client_id)


def test_own_requests_of_a_gateway_name_no_user() -> None:
    token = acting_for.set(Actor("alice", "host"))
    with own_requests():
        assert acting_for.get() is None
    assert acting_for.get() == Actor("alice", "host")
    acting_for.reset(token)


def test_only_gateways_may_name_others(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        broker.context.authorizer = rights = UserRights(alice={("DESCRIBE", "orders")})
        asked = {"topics": [{"topic_id": None, "name": "orders"}], "allow_auto_topic_creation": False}

        async def error_of(client_id: str) -> int:
            return int((await broker.ask(3, 12, asked, client_id=client_id)).topics[0].error_code)

        for client_id in (with_actor("x", Actor("alice", "10.0.0.1")), of_gateway("x")):
            with pytest.raises(ProtocolError, match=r"gateway\.users"):
                await error_of(client_id)
        assert await error_of("x") == 29  # TOPIC_AUTHORIZATION_FAILED for the client itself
        broker.session.is_gateway = True
        assert await error_of(with_actor("x", Actor("alice", "10.0.0.1"))) == 0
        assert rights.asked[-1] == ("User:alice", "10.0.0.1")
        assert await error_of(with_actor("x", Actor("bob", "10.0.0.1"))) == 29
        assert await error_of(of_gateway("x")) == 0
        assert await error_of("x") == 29  # without the claim a gateway has the rights of its user
        assert broker.session.client_id == "x"

    serve(tmp_path, scenario)


def test_user_named_like_a_broker_is_not_a_broker() -> None:
    assert Principal("User", BROKER.name) != BROKER


RIGHTS = {
    "alice": {("WRITE", "orders"), ("DESCRIBE", "orders"), ("READ", "orders")},
    "admin": {("ALL", "*")},
}
MAIL = '{"from_user": "%s", "to_user": "bob", "message": "hi"}'


async def check_rights(client: HttpsClient) -> None:
    """Requests of three users, whose rights are those of RIGHTS: bob has none."""

    async def ask(user: str, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        status, _, answer = await in_thread(partial(client.ask, method, path, basic(user, "secret"), body))
        return status, answer

    async def status(*arguments: str) -> int:
        found = await ask(*arguments)
        return found[0]

    message = '{"messages": [{"value": "x"}]}'
    assert await status("alice", "POST", "/v1/topics/orders/messages", message) == 200
    hidden = (403, 404)  # a topic that a user may not describe does not exist in a broker's own gateway
    assert await status("bob", "POST", "/v1/topics/orders/messages", message) in hidden
    assert await status("alice", "POST", "/v1/topics", '{"name": "new"}') == 403
    assert await status("admin", "POST", "/v1/topics", '{"name": "new"}') == 201
    assert await status("alice", "GET", "/v1/topics/orders/messages?partition=0&offset=0") == 200
    assert await status("bob", "GET", "/v1/topics/orders/messages?partition=0&offset=0") in hidden
    for user, shown in (("alice", ["orders"]), ("bob", []), ("admin", ["new", "orders"])):
        topics = json.loads((await ask(user, "GET", "/v1/topics"))[1])["topics"]
        assert [each["name"] for each in topics if each["name"] != "mailbox"] == shown, user
    # A mailbox belongs to its user; others need a right on the topic.
    assert await status("bob", "POST", "/send", MAIL % "bob") == 200
    assert await status("bob", "POST", "/send", MAIL % "alice") == 403
    assert await status("admin", "POST", "/send", MAIL % "alice") == 200
    assert len(json.loads((await ask("bob", "GET", "/receive?user_id=bob"))[1])["messages"]) == 2
    assert await status("alice", "GET", "/receive?user_id=bob") == 403
    assert await status("alice", "GET", "/receive/events?user_id=bob") == 403
    both = '{"user_id": "bob"}'
    assert await status("alice", "POST", "/receive?user_id=alice", both) in (400, 403)
    assert await status("alice", "POST", "/receive", both) == 403
    assert await status("admin", "GET", "/receive?user_id=bob") == 200


def test_embedded_gateway_names_its_users(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create("orders")
        for user in ("alice", "bob", "admin"):
            await add_user(harness, user, "secret")
        harness.context.authorizer = rights = UserRights(**RIGHTS)
        await check_rights(HttpsClient(brokers.running[1].http_port, authority))
        assert ("User:alice", "127.0.0.1") in rights.asked

    run(tmp_path, scenario, **secure(authority))


def own_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, authority: TestAuthority) -> None:
    """Let a gateway of this process log in as the user `gateway`."""
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text("own\n")
    monkeypatch.setenv("PENSTOCK_CA", str(authority.file))
    monkeypatch.setenv("PENSTOCK_USER", "gateway")
    monkeypatch.setenv("PENSTOCK_PASSWORD_FILE", str(password))


def own_gateway(authority: TestAuthority) -> GatewayProcess:
    """Gateway of its own whose clients log in."""
    settings = {**authority.settings("gateway"), "http.port": "0", "http.ssl.enable": "true"}
    config = BrokerConfig({**settings, "http.authentication.enable": "true"})
    return GatewayProcess(config, Logger(SystemClock(), lambda _: None, lambda *_: ""), None)


def test_gateway_of_its_own_records_refused_requests_and_no_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = TestAuthority(tmp_path / "tls")
    own_user(monkeypatch, tmp_path, authority)

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        for topic in ("orders", "bills"):
            await harness.create(topic)
        await add_user(harness, "alice", "secret")
        await add_user(harness, "gateway", "own")
        entry = AccessControlEntry("User:alice", "*", Operation.DESCRIBE, Permission.ALLOW)
        rule = AclBinding(ResourcePattern(ResourceType.TOPIC, "bills", PatternType.LITERAL), entry)
        await harness.context.acl_admin.create([rule])
        gateway = own_gateway(authority)
        client = HttpsClient((await gateway.start([address_of(brokers, 1, "SASL_SSL")])).port, authority)

        async def status(method: str, path: str, body: str | None = None) -> int:
            ask = partial(client.ask, method, path, basic("alice", "secret"), body)
            found = await in_thread(ask)
            return found[0]

        try:
            assert await status("GET", "/v1/topics") == 200
            assert await status("GET", "/v1/rights?resource_type=TOPIC&name=orders") == 200
            refusals = harness.context.authorization.refusals
            assert (refusals.total, await status("GET", "/v1/groups"), refusals.total) == (0, 200, 0)
            # A topic that the user may describe exists, and no other.
            message = '{"messages": [{"value": "x"}]}'
            assert await status("POST", "/v1/topics/bills/messages", message) == 403
            assert await status("POST", "/v1/topics/orders/messages", message) == 404
            assert {each.name for each in refusals.newest(10)} == {"bills", "orders"}
        finally:
            await gateway.stop()

    settings = {
        "gateway_users": "User:gateway",
        "authorization_mode": "enforce",
        "super_users": "User:ANONYMOUS",
    }
    run(tmp_path, scenario, **settings, **secure(authority))


@pytest.mark.parametrize("is_known", [True, False])
def test_gateway_of_its_own_names_its_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    authority = TestAuthority(tmp_path / "tls")
    own_user(monkeypatch, tmp_path, authority)

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create("orders")
        for user in ("alice", "bob", "admin"):
            await add_user(harness, user, "secret")
        await add_user(harness, "gateway", "own")
        harness.context.authorizer = UserRights(**RIGHTS, gateway={("ALL", "*")})
        gateway = own_gateway(authority)
        client = HttpsClient((await gateway.start([address_of(brokers, 1, "SASL_SSL")])).port, authority)
        try:
            if is_known:
                await check_rights(client)
            else:
                found = await in_thread(partial(client.ask, "GET", "/v1/topics", basic("admin", "secret")))
                assert found[0] == 503
                assert b"gateway.users" in found[2]
        finally:
            await gateway.stop()

    users = "User:gateway;User:other" if is_known else ""
    listener = "SASL_SSL://127.0.0.1:0"
    run(tmp_path, scenario, listeners=listener, gateway_users=users, **named(authority.settings()))
