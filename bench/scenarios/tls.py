"""Produce, consume and synchronous produce over TLS 1.3, beside Kafka with the same certificate."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bench.client_security import using
from bench.comparison import Bar, Metric, Row, row_of
from bench.context import Context
from bench.ports import free_ports
from bench.scenarios import consume, produce, synchronous
from bench.servers import Kafka, Penstock
from bench.target import Target
from penstock.security.certificates import CertificateRequest, issue, make_authority

HOSTS = ("localhost", "127.0.0.1")
BARS = {
    ("consume 1 KB", "server CPU"): Bar("ratio", "at most", 0.7),
    ("produce 1 KB", "server CPU"): Bar("ratio", "at most", 0.9),
    ("one-record requests", "rate"): Bar("ratio", "at least", 1.6),
    ("one-record requests", "server CPU"): Bar("ratio", "at most", 0.5),
    ("synchronous produce 1 KB", "p50"): Bar("ratio", "at most", 1.0),
    ("synchronous produce 1 KB", "p99"): Bar("ratio", "at most", 0.5),
    ("memory", "resident"): Bar("ratio", "at most", 0.1),
}
"""Targets by scenario and label of a row; other rows have none."""
MEMORY = Metric("rss_mb", "resident", "MB")


class TlsPenstock(Penstock):
    def __init__(self, keystore: Path, authority: Path) -> None:
        plain, self.tls_port = free_ports(2)
        settings = (
            f"listeners=PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{self.tls_port}",
            "inter.broker.listener.name=PLAINTEXT",
            "ssl.enabled.protocols=TLSv1.3",
            f"ssl.keystore.location={keystore}",
            f"ssl.truststore.location={authority}",
        )
        super().__init__(settings=settings)
        self.port = plain

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.tls_port}"


class TlsKafka(Kafka):
    def __init__(self, keystore: Path, authority: Path) -> None:
        plain, self.tls_port, controller = free_ports(3)
        listeners = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{self.tls_port}"
        settings = (
            f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}",
            "inter.broker.listener.name=PLAINTEXT",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl.enabled.protocols=TLSv1.3",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={keystore}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={authority}",
        )
        super().__init__(settings=settings, controller_ports={1: controller})
        self.port = plain

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.tls_port}"


def encrypted(context: Context) -> list[Row]:
    with _servers(context) as servers:
        rows = [
            *produce.one_kilobyte(context, servers),
            *produce.one_record_requests(context, servers),
            *consume.with_client(context, servers),
            *synchronous.one_at_a_time(context, servers),
        ]
        memory = row_of("memory", MEMORY, {server.name: [server.rss_mb()] for server in servers})
    return [_with_own_bar(row) for row in (*rows, memory)]


@contextmanager
def _servers(context: Context) -> Iterator[Sequence[Target]]:
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as directory, ExitStack() as stack:
        keystore, authority = _certificates(Path(directory))
        stack.enter_context(using({"security.protocol": "SSL", "ssl.ca.location": str(authority)}))
        made = {Penstock: TlsPenstock, Kafka: TlsKafka}
        chosen = [made[make] for make in context.contestants if make in made]
        yield [stack.enter_context(make(keystore, authority)) for make in chosen]


def _certificates(directory: Path) -> tuple[Path, Path]:
    now_ms = time.time_ns() // 1_000_000
    authority = make_authority("bench", now_ms)
    pair = issue(authority, CertificateRequest("broker", HOSTS), now_ms)
    keystore, trusted = directory / "broker.pem", directory / "ca.pem"
    keystore.touch(mode=0o600)
    keystore.write_bytes(pair.key + pair.certificate)
    trusted.write_bytes(authority.certificate)
    return keystore, trusted


def _with_own_bar(row: Row) -> Row:
    return replace(row, scenario=f"{row.scenario}, TLS", bar=BARS.get((row.scenario, row.label)))
