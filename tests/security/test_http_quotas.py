"""Quotas and audit of HTTP users: 429 with Retry-After, for the user alone, and failed logins in the audit log."""

from __future__ import annotations

import json
from functools import partial
from http.client import HTTPSConnection
from pathlib import Path
from ssl import create_default_context

import pytest
from test_http_users import HttpsClient, basic, secure
from test_on_behalf import own_gateway, own_user

from support.certificates import TestAuthority
from support.eventually import eventually_async
from support.harness import Harness
from support.secure_brokers import add_user, address_of, in_thread
from support.whole_brokers import Brokers, run

MESSAGE = json.dumps({"messages": [{"value": "x" * 40_000}]})


def send(port: int, authority: TestAuthority, user: str) -> tuple[int, int, str]:
    """Status, Retry-After and body of the response to a large message."""
    context = create_default_context(cafile=str(authority.file))
    connection = HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    try:
        headers = {"Authorization": basic(user, "secret"), "Content-Type": "application/json"}
        connection.request("POST", "/v1/topics/orders/messages", MESSAGE, headers)
        answer = connection.getresponse()
        return answer.status, int(answer.getheader("Retry-After") or 0), answer.read().decode()
    finally:
        connection.close()


def test_user_over_its_quota_gets_429_and_others_are_served(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        for user in ("noisy", "quiet"):
            await add_user(harness, user, "secret")
        await harness.create("orders")
        await set_quota(harness, "noisy", "producer_byte_rate", 1_000.0)
        port = brokers.running[1].http_port
        assert (await in_thread(partial(send, port, authority, "noisy")))[0] == 200
        status, wait, body = await in_thread(partial(send, port, authority, "noisy"))
        problem = json.loads(body)
        assert (status, problem["error"], problem["retriable"]) == (429, "THROTTLING_QUOTA_EXCEEDED", True)
        assert 20 <= wait <= 60
        end = harness.context.replicas.get("orders", 0).log.log_end_offset
        assert end == 1
        assert (await in_thread(partial(send, port, authority, "quiet")))[0] == 200

    run(tmp_path, scenario, **secure(authority))


async def set_quota(harness: Harness, user: str, key: str, value: float) -> None:
    entity = [{"entity_type": "user", "entity_name": user}]
    operations = [{"key": key, "value": value, "remove": False}]
    await harness.ask(49, 1, {"entries": [{"entity": entity, "ops": operations}], "validate_only": False})
    await eventually_async(lambda: harness.context.quotas is not None)


@pytest.mark.slow
@pytest.mark.parametrize(("key", "value"), [("producer_byte_rate", 1_000.0), ("request_percentage", 0.0001)])
def test_gateway_of_its_own_knows_the_quotas_of_its_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: float
) -> None:
    authority = TestAuthority(tmp_path / "tls")
    own_user(monkeypatch, tmp_path, authority)

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        for user in ("noisy", "quiet", "gateway"):
            await add_user(harness, user, "own" if user == "gateway" else "secret")
        await harness.create("orders")
        await set_quota(harness, "noisy", key, value)
        gateway = own_gateway(authority)
        port = (await gateway.start([address_of(brokers, 1, "SASL_SSL")])).port
        try:

            async def is_refused() -> bool:
                status, wait, body = await in_thread(partial(send, port, authority, "noisy"))
                assert status == 200 or (json.loads(body)["error"], wait > 0) == (
                    "THROTTLING_QUOTA_EXCEEDED",
                    True,
                )
                return status == 429

            assert not await is_refused()
            await eventually_async(is_refused)
            assert (await in_thread(partial(send, port, authority, "quiet")))[0] == 200
        finally:
            await gateway.stop()

    run(tmp_path, scenario, gateway_users="User:gateway", **secure(authority))


def test_time_in_the_gateway_counts_for_the_user(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "noisy", "secret")
        await set_quota(harness, "noisy", "request_percentage", 0.0001)
        client = HttpsClient(brokers.running[1].http_port, authority)
        ask = partial(client.ask, "GET", "/v1/session", basic("noisy", "secret"))
        assert [(await in_thread(ask))[0] for _ in range(2)] == [200, 429]

    run(tmp_path, scenario, **secure(authority))


def test_time_of_requests_over_http_counts_for_the_user(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        for user in ("noisy", "quiet"):
            await add_user(harness, user, "secret")
        await harness.create("orders")
        await set_quota(harness, "noisy", "request_percentage", 0.0001)
        port = brokers.running[1].http_port
        answers = [await in_thread(partial(send, port, authority, "noisy")) for _ in range(3)]
        statuses = [status for status, _, _ in answers]
        assert statuses[0] == 200
        assert statuses[-1] == 429
        assert answers[-1][1] > 0
        assert (await in_thread(partial(send, port, authority, "quiet")))[0] == 200

    run(tmp_path, scenario, **secure(authority))


def test_failed_logins_over_http_are_audited(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")
    audit = tmp_path / "audit.log"

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "alice", "secret")
        client = HttpsClient(brokers.running[1].http_port, authority)
        for credentials in (basic("alice", "guess"), basic("nobody\n{}", "x"), "Bearer nonsense"):
            status, _, _ = await in_thread(partial(client.ask, "GET", "/v1/topics", credentials))
            assert status == 401
        assert (await in_thread(partial(client.ask, "GET", "/v1/session", basic("alice", "secret"))))[
            0
        ] == 200

    run(tmp_path, scenario, **secure(authority), audit_log=str(audit))
    lines = [json.loads(line) for line in audit.read_bytes().splitlines()]
    found = [(each["principal"], each["mechanism"]) for each in lines if each["event"] == "login failed"]
    assert found == [
        ("User:alice", "HTTP basic"),
        ("User:nobody\n{}", "HTTP basic"),
        ("User:", "HTTP bearer"),
    ]
    assert b"guess" not in audit.read_bytes()
