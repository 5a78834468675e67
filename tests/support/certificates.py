"""Certificate files for tests, signed by an authority of the test."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.security.certificates import CertificateRequest, KeyPair, issue, make_authority

HOSTS = ("localhost", "127.0.0.1")


class TestAuthority:
    """Authority whose certificate is in `ca.pem` of a directory."""

    __test__ = False

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.pair = make_authority(name, now_ms())
        self.file = directory / "ca.pem"
        self.file.write_bytes(self.pair.certificate)

    def issue(
        self, name: str, hosts: tuple[str, ...] = HOSTS, days: int = 30, at_ms: int | None = None
    ) -> Path:
        """Write certificate and key of a server, or of a client without hosts, into one file."""
        made = issue(self.pair, CertificateRequest(name, hosts, days), at_ms or now_ms())
        return write_pair(self.directory / f"{name}.pem", made)

    def settings(self, name: str = "broker") -> dict[str, str]:
        """Settings of a broker with a certificate of this authority."""
        return {
            "ssl.keystore.location": str(self.issue(name)),
            "ssl.truststore.location": str(self.file),
        }


def write_pair(file: Path, pair: KeyPair) -> Path:
    return replace_file(file, pair.certificate + pair.key)


def replace_file(file: Path, content: bytes) -> Path:
    """Write a private file in one step, so that a broker never reads half of it."""
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    return new.replace(file)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
