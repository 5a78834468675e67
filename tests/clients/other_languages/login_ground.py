"""Brokers with a listener for each way to log in, for programs that use all of them at once: part of `make clients`.

Logins expire after some seconds, so that clients log in again while they produce and consume.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from joserfc import jwt
from joserfc.jwk import ECKey

from penstock.internal_client.client import InternalClient
from support.broker_process import BrokerProcess, free_ports
from support.certificates import TestAuthority
from support.cluster_processes import ClusterProcesses

ISSUER, AUDIENCE = "https://issuer.example", "kafka"
USER, PASSWORD = "alice", "secret"
LOAD_SECONDS = 7
LISTENERS = ("SASL_SSL", "SASL_PLAINTEXT", "SSL")


@dataclass(frozen=True, slots=True)
class LoginGround:
    brokers: tuple[BrokerProcess, ...]
    file: Path
    """Addresses and secrets for a program, as JSON."""

    def logins(self) -> tuple[int, int]:
        """Logins by SASL of all brokers: accepted and failed ones."""
        return self._sum("penstock_logins_total"), self._sum("penstock_logins_failed_total")

    def _sum(self, metric: str) -> int:
        total = 0.0
        for broker in self.brokers:
            with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics") as answer:
                lines = answer.read().decode().splitlines()
            total += sum(float(line.split()[-1]) for line in lines if line.startswith(f"{metric} "))
        return int(total)


@contextmanager
def login_ground(directory: Path, size: int, lifetime_ms: int) -> Iterator[LoginGround]:
    authority = TestAuthority(directory / "tls")
    cluster = ClusterProcesses(directory, size) if size > 1 else None
    brokers = tuple(cluster.brokers.values()) if cluster else (BrokerProcess(directory),)
    addresses: dict[str, list[str]] = {name: [] for name in LISTENERS}
    for broker in brokers:
        ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        broker.settings += tuple(_settings(broker, ports, authority, directory, lifetime_ms))
        for name, port in ports.items():
            addresses[name].append(f"127.0.0.1:{port}")
    described = _describe(directory, addresses, authority)
    try:
        if cluster:
            cluster.start()
        else:
            brokers[0].start()
        asyncio.run(_create_user(brokers[0].bootstrap))
        yield LoginGround(brokers, described)
    finally:
        if cluster:
            cluster.close()
        else:
            brokers[0].kill()


def _settings(
    broker: BrokerProcess, ports: dict[str, int], authority: TestAuthority, directory: Path, lifetime_ms: int
) -> Iterator[str]:
    listeners = {"PLAINTEXT": broker.port, **ports}
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.plain.without.tls": "true",
        "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "connections.max.reauth.ms": str(lifetime_ms),
        "authorization.mode": "off",
        **authority.settings(),
    }
    return (f"{name}={value}" for name, value in settings.items())


def _describe(directory: Path, addresses: dict[str, list[str]], authority: TestAuthority) -> Path:
    """Write the keys of the token issuer, and what a program needs."""
    key = ECKey.generate_key("P-256", {"kid": "issuer"}, private=True)
    (directory / "keys.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": USER, "scope": "all", "iat": now, "exp": now + 3600}
    file = directory / "logins.json"
    described = {
        "addresses": {name: ",".join(places) for name, places in addresses.items()},
        "authority": str(authority.file),
        "certificate": str(authority.issue("bob", ())),
        "user": USER,
        "password": PASSWORD,
        "token": jwt.encode({"alg": "ES256", "kid": "issuer"}, claims, key),
        "expires": now + 3600,
        "seconds": LOAD_SECONDS,
    }
    file.write_text(json.dumps(described))
    return file


async def _create_user(bootstrap: str) -> None:
    async with InternalClient.to(bootstrap, "make-clients", 30.0) as client:
        await client.users.set_password(USER, PASSWORD)
