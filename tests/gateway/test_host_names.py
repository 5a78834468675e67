"""Names by which browsers may reach the gateway: no page gets in by a name of its own."""

from __future__ import annotations

import pytest

from penstock.config import BrokerConfig
from penstock.gateway.http.host_names import HostNames
from penstock.gateway.http.problems import Problem

NAMES = HostNames(
    BrokerConfig(
        {
            "advertised.listeners": "broker-1.example.com:9092",
            "gateway.allowed.hosts": "console.example.com, queue",
            "gateway.allowed.origins": "https://app.example.com",
        }
    )
)


def check(host: bytes, **others: bytes) -> None:
    headers = {name.replace("_", "-").encode(): value for name, value in others.items()}
    NAMES.check({b"host": host, **headers})


@pytest.mark.parametrize(
    "host",
    [
        b"localhost:8080",
        b"127.0.0.1",
        b"[::1]:8080",
        b"10.1.2.3:80",
        b"LOCALHOST",
        b"a.localhost",
        b"localhost.:8080",
        b"Broker-1.example.com:8080",
        b"console.example.com",
        b"queue:80",
        b"app.example.com",
    ],
)
def test_gateway_serves_its_own_host_names_and_addresses(host: bytes) -> None:
    check(host, accept_language=b"en")


@pytest.mark.parametrize(
    "host", [b"evil.example", b"localhost.evil.example", b"127.0.0.1.evil.example", b"\xff"]
)
def test_page_at_another_name_is_refused(host: bytes) -> None:
    with pytest.raises(Problem) as refused:
        check(host, accept_language=b"en")
    assert refused.value.status == 421
    assert "gateway.allowed.hosts" in refused.value.detail


def test_other_programs_are_served_at_any_name() -> None:
    check(b"anything.internal")
    NAMES.check({b"accept-language": b"en"})
