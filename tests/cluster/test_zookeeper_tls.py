"""ZooKeeper over TLS: host names and certificates are checked on both sides, and nodes belong to the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.cluster.zookeeper_process import EnsembleMember, ZooKeeperProcess, ZooKeeperTls, server_mode
from penstock.cluster.coordination import StoreUnreachable
from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.cluster.zookeeper_security import ZooKeeperSecurity, zookeeper_security
from penstock.config import BrokerConfig
from penstock.errors import ConfigError, PenstockError
from penstock.security.tls_context import read_subject
from penstock.testing.process import free_ports
from penstock.threads import ThreadPools
from support.certificates import TestAuthority

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""kazoo leaves the socket of a refused handshake to the garbage collector."""
SESSION_MS = 2_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(
    starts_processes: None, authority: TestAuthority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperProcess]:
    tls = ZooKeeperTls(
        str(authority.issue("zookeeper")), str(authority.file), str(authority.issue("asking", ()))
    )
    directory = str(tmp_path_factory.mktemp("zookeeper"))
    process = ZooKeeperProcess(directory, [EnsembleMember(free_ports(1)[0], 0, 0)], tls=tls)
    process.start()
    yield process
    process.stop()


async def created(server: ZooKeeperProcess, security: ZooKeeperSecurity, host: str = "127.0.0.1") -> bool:
    """Whether a client with this security can create and read a node."""
    threads = ThreadPools()
    store = ZooKeeperStore(f"{host}:{server.port}/secured", threads, SESSION_MS, security)
    try:
        await store.start()
        with suppress(PenstockError):
            await store.create("/node", b"secret")
        return (await store.get("/node")).data == b"secret"
    except (StoreUnreachable, PenstockError):
        return False
    finally:
        await store.close()
        threads.close()


def security_of(authority: TestAuthority, name: str = "broker") -> ZooKeeperSecurity:
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(authority.issue(name, ())),
        "zookeeper.ssl.truststore.location": str(authority.file),
        "zookeeper.x509.acl.enable": "true",
    }
    return zookeeper_security(BrokerConfig(settings), read_subject)


def test_only_certificates_of_the_authority_and_the_subject_have_access(
    server: ZooKeeperProcess, authority: TestAuthority, tmp_path: Path
) -> None:
    own = security_of(authority)
    foreign = TestAuthority(tmp_path / "foreign")

    async def scenario() -> None:
        assert own.subject == "CN=broker"
        assert await created(server, own)
        # Another client of the same authority has TLS, but no right on the nodes.
        assert not await created(server, security_of(authority, "other"))
        assert not await created(server, ZooKeeperSecurity())
        assert not await created(server, replace(own, certificate=None, subject=None))
        assert not await created(server, replace(own, certificate=str(foreign.issue("broker", ()))))
        assert not await created(server, replace(own, authorities=str(foreign.file)))

    asyncio.run(scenario())
    assert server_mode(server.port) is None  # no plaintext


def test_name_of_the_server_is_checked(
    starts_processes: None, authority: TestAuthority, tmp_path: Path
) -> None:
    tls = ZooKeeperTls(
        str(authority.issue("named", ("zookeeper.example.com",))),
        str(authority.file),
        str(authority.issue("asking", ())),
    )
    process = ZooKeeperProcess(str(tmp_path), [EnsembleMember(free_ports(1)[0], 0, 0)], tls=tls)
    process.spawn()
    own = security_of(authority)

    async def scenario() -> None:
        unchecked = replace(own, checks_host=False)
        async with asyncio.timeout(60):
            while not await created(process, unchecked):
                pass
        assert not await created(process, own)

    try:
        asyncio.run(scenario())
    finally:
        process.stop()


def test_rights_by_subject_need_a_certificate() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.keystore\.location"):
        zookeeper_security(BrokerConfig({"zookeeper.x509.acl.enable": "true"}), read_subject)
