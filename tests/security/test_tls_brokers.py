"""Brokers with TLS listeners, in the test's process, with librdkafka and raw TLS connections as clients."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from penstock.config import Address
from penstock.security.certificates import CertificateRequest, issue
from penstock.security.tls_reload import CertificateReloads
from penstock.server.security import Authorizer, Operation, Principal, ResourceType
from support.certificates import TestAuthority, now_ms, replace_file
from support.eventually import eventually_async
from support.secure_brokers import address_of, consume, create, in_thread, named, produce
from support.whole_brokers import Brokers, run

TWO_LISTENERS = "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"


def tls_client(
    brokers: Brokers, authority: TestAuthority, number: int = 1, more: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {
        "bootstrap.servers": str(address_of(brokers, number, "SSL")),
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.file),
        "log_level": 3,
        **(more or {}),
    }


def test_clients_of_each_listener_see_its_addresses_and_the_same_records(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        await brokers.start(1)
        encrypted = tls_client(brokers, authority)
        plain = {"bootstrap.servers": str(address_of(brokers, 1, "PLAINTEXT")), "log_level": 3}
        for settings in (encrypted, plain):
            listed = await in_thread(partial(AdminClient(settings).list_topics, timeout=10))
            [broker] = listed.brokers.values()
            assert f"{broker.host}:{broker.port}" == settings["bootstrap.servers"]
        await in_thread(lambda: create(encrypted, "t"))
        await in_thread(lambda: produce(encrypted, "t", 3_000))
        for settings in (encrypted, plain):
            read = await in_thread(partial(consume, settings, "t", 3_000))
            assert read == list(range(3_000))

    run(tmp_path, scenario, listeners=TWO_LISTENERS, durability="os", **named(authority.settings()))


def test_three_brokers_replicate_over_tls(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        for number in (1, 2, 3):
            await brokers.start(number)
        settings = tls_client(brokers, authority, 2)
        await in_thread(lambda: create(settings, "t", 3))
        await in_thread(lambda: produce(settings, "t", 2_000))
        assert brokers.members(1, "t") == {1, 2, 3}
        assert await in_thread(lambda: consume(settings, "t", 2_000)) == list(range(2_000))

    settings = named(authority.settings())
    run(tmp_path, scenario, listeners="SSL://127.0.0.1:0", ssl_client_auth="requested", **settings)


class Noting(Authorizer):
    """Authorizer that allows everything and notes the principals."""

    def __init__(self) -> None:
        self.principals: set[str] = set()

    def authorize(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        self.principals.add(str(principal))
        return True


@pytest.mark.slow
def test_user_is_taken_from_the_client_certificate(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")
    client = authority.issue("Alice", hosts=())

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        harness.context.authorizer = noting = Noting()
        own = {"ssl.certificate.location": str(client), "ssl.key.location": str(client)}
        settings = tls_client(brokers, authority, more=own)
        await in_thread(lambda: create(settings, "t"))
        assert "User:alice" in noting.principals
        without = tls_client(brokers, authority)
        with pytest.raises(Exception, match=r"imed out|Failed to get metadata"):
            await in_thread(lambda: AdminClient(without).list_topics(timeout=1))

    run(
        tmp_path,
        scenario,
        listeners=TWO_LISTENERS,
        inter_broker_listener_name="PLAINTEXT",
        ssl_client_auth="required",
        ssl_principal_mapping_rules="RULE:^CN=([^,]+)$/$1/L",
        **named(authority.settings()),
    )


def served_certificate(address: Address, authority: TestAuthority) -> bytes:
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        socket.create_connection((address.host, address.port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as connection,
    ):
        certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def test_certificate_is_replaced_while_the_broker_runs_unless_it_is_broken(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")
    settings = authority.settings()
    file = Path(settings["ssl.keystore.location"])

    async def scenario(brokers: Brokers) -> None:
        await brokers.start(1)
        reloads = brokers.running[1]._security.reloads
        address = address_of(brokers, 1, "SSL")
        first = await in_thread(lambda: served_certificate(address, authority))
        other, expired = (
            issue(authority.pair, CertificateRequest("broker", ("localhost",), 1), at_ms)
            for at_ms in (now_ms(), now_ms() - 3 * 86_400_000)
        )
        broken = (expired.certificate + expired.key, other.certificate + expired.key, b"nonsense", b"")
        for failures, content in enumerate(broken, 1):
            replace_file(file, content)
            await eventually_async(partial(_has_failures, reloads, failures))
            assert await in_thread(lambda: served_certificate(address, authority)) == first
        replace_file(file, other.certificate + other.key)
        await eventually_async(
            lambda: reloads.failures >= len(broken) and _is_new(reloads.seconds_to_expiry())
        )
        assert await in_thread(lambda: served_certificate(address, authority)) != first

    run(tmp_path, scenario, listeners=TWO_LISTENERS, ssl_reload_interval_ms="20", **named(settings))


def _is_new(seconds: float) -> bool:
    return seconds < 2 * 86_400


def _has_failures(reloads: CertificateReloads, count: int) -> bool:
    return reloads.failures >= count
