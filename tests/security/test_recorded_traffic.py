"""Traffic between clients and brokers and between brokers, recorded by a proxy: nothing of it can be read."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.broker_process import free_ports
from support.certificates import TestAuthority
from support.eventually import eventually_async
from support.harness import Harness
from support.secure_brokers import add_user, address_of, consume, create, in_thread, named, produce
from support.whole_brokers import Brokers, run

MARKER = b"a marker that nobody may read"
PASSWORD = "the password of alice"


class RecordingProxy:
    """TCP proxy in front of a port, which keeps everything that passes."""

    def __init__(self, target: int) -> None:
        self.recorded = bytearray()
        self._target = target

    async def start(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer), return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while content := await reader.read(65_536):
                self.recorded += content
                writer.write(content)
                await writer.drain()
        finally:
            writer.close()


def test_recorded_traffic_shows_neither_records_nor_passwords(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")
    bound, advertised = free_ports(2)

    async def scenario(brokers: Brokers) -> None:
        proxy = RecordingProxy(bound)
        server = await proxy.start(advertised)
        await brokers.start(1)
        await add_user(Harness(brokers.running[1]), "alice", PASSWORD)
        assert address_of(brokers, 1, "SASL_SSL").port == advertised
        settings = {
            "bootstrap.servers": f"127.0.0.1:{advertised}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.file),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
            "log_level": 3,
        }
        await in_thread(lambda: create(settings, MARKER.decode().replace(" ", "-")))
        await in_thread(lambda: produce(settings, MARKER.decode().replace(" ", "-"), 500, content=MARKER))
        await in_thread(lambda: consume(settings, MARKER.decode().replace(" ", "-"), 500))
        assert len(proxy.recorded) > 500 * len(MARKER)
        for secret in (MARKER, MARKER.replace(b" ", b"-"), PASSWORD.encode(), b"alice"):
            assert secret not in proxy.recorded
        server.close()

    run(
        tmp_path,
        scenario,
        listeners=f"SASL_SSL://127.0.0.1:{bound}",
        advertised_listeners=f"SASL_SSL://127.0.0.1:{advertised}",
        **named(authority.settings()),
    )


def test_traffic_between_brokers_shows_no_records(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")
    ports = free_ports(4)

    async def scenario(brokers: Brokers) -> None:
        proxies, servers = [], []
        for number, bound, advertised in ((1, *ports[:2]), (2, *ports[2:])):
            proxies.append(RecordingProxy(bound))
            servers.append(await proxies[-1].start(advertised))
            brokers._settings |= {
                "listeners": f"SASL_SSL://127.0.0.1:{bound}",
                "advertised.listeners": f"SASL_SSL://127.0.0.1:{advertised}",
            }
            await brokers.start(number)
        await add_user(Harness(brokers.running[1]), "alice", PASSWORD)
        await eventually_async(lambda: "alice" in brokers.running[2]._metadata.image.users)
        # Brokers and clients alike use the advertised addresses, which are those of the proxies.
        settings = {
            "bootstrap.servers": f"127.0.0.1:{ports[0]}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.file),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
            "log_level": 3,
        }
        await in_thread(lambda: create(settings, "t", 2))
        await in_thread(lambda: produce(settings, "t", 300, content=MARKER))
        await eventually_async(lambda: brokers.members(1, "t") == {1, 2})
        recorded = b"".join(bytes(proxy.recorded) for proxy in proxies)
        assert len(recorded) > 2 * 300 * len(MARKER)  # to the leader, and from there to the follower
        secret = Harness(brokers.running[1]).context.replicas.secret
        assert secret
        for hidden in (MARKER, PASSWORD.encode(), secret.encode()):
            assert hidden not in recorded
        for server in servers:
            server.close()

    run(tmp_path, scenario, **named(authority.settings()))
