"""`--secure`: creates an authority, a certificate and an administrator below the data directory, and a context for
commands.

A later start uses the existing files. The certificate is renewed a month before it expires.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.cli.contexts import Context, load_contexts, save_contexts
from penstock.cli.tls import CA_FILE, issue_into, write_authority, write_secret
from penstock.clock import SystemClock
from penstock.config import HOST, HTTP_PORT, LOG_DIR, PORT, BrokerConfig
from penstock.security.certificates import CertificateRequest, describe

ADMIN = "admin"
DIRECTORY = "tls"
PASSWORD_FILE = "admin.password"
RENEWAL = timedelta(days=30)
_WILDCARDS = ("", "0.0.0.0", "::", "*")


@dataclass(frozen=True, slots=True)
class SecureSetup:
    directory: Path
    password: str | None
    """Password of the administrator if this call has created it, else None."""

    @property
    def ca(self) -> Path:
        return self.directory / CA_FILE

    @property
    def password_file(self) -> Path:
        return self.directory / PASSWORD_FILE

    def settings(self, certificate: Path) -> dict[str, str]:
        """Settings of a broker that apply to all listeners."""
        return {
            "ssl.keystore.location": str(certificate),
            "ssl.truststore.location": str(self.ca),
            "http.ssl.enable": "true",
            "http.authentication.enable": "true",
            "admin.user": ADMIN,
            "admin.password.file": str(self.password_file),
        }

    def save_context(self, name: str, bootstrap: str) -> None:
        """Write a context and make it the current one."""
        contexts = load_contexts()
        contexts.contexts[name] = Context(bootstrap, str(self.ca), ADMIN, str(self.password_file))
        contexts.current = name
        save_contexts(contexts)


def prepare(directory: Path) -> SecureSetup:
    """Create the authority and the password of the administrator if they do not exist."""
    directory = directory.absolute()
    if not (directory / CA_FILE).exists():
        write_authority(directory)
    password = None
    if not (directory / PASSWORD_FILE).exists():
        password = secrets.token_urlsafe(18)
        write_secret(directory / PASSWORD_FILE, f"{password}\n".encode())
    return SecureSetup(directory, password)


def certificate_for(setup: SecureSetup, name: str, hosts: Iterable[str]) -> Path:
    """Return the certificate of a broker for these hosts and the names of this machine; renew it before it expires."""
    wanted = ["localhost", "127.0.0.1", "::1", socket.gethostname()]
    wanted += [host for host in hosts if host not in _WILDCARDS]
    file = setup.directory / f"{name}.pem"
    if file.exists():
        found = describe(file.read_bytes())
        left = datetime.fromisoformat(str(found["valid_until"])) - _now()
        known = found["hosts"]
        if left > RENEWAL and isinstance(known, list) and set(wanted) <= set(known):
            return file
    return issue_into(setup.directory, CertificateRequest(name, tuple(dict.fromkeys(wanted))))


def secure_broker(config: BrokerConfig) -> dict[str, str]:
    """Prepare a single broker and return its settings. Prints the password of a new administrator once."""
    setup = prepare(Path(config[LOG_DIR]) / DIRECTORY)
    host, port = config[HOST], config[PORT] or _free_port()
    advertised = [address.host for address in config.listeners.advertised.values()]
    certificate = certificate_for(setup, "broker", [host, *advertised])
    shown = f"[{host}]" if ":" in host else host
    bootstrap = f"{'localhost' if host in _WILDCARDS else shown}:{port}"
    name = f"local-{port}"
    setup.save_context(name, bootstrap)
    announce(setup, name, config[HTTP_PORT] >= 0)
    return {"listeners": f"SASL_SSL://{shown}:{port}", **setup.settings(certificate)}


def enter(config: BrokerConfig) -> None:
    """Set environment variables with which commands of this process log in to the broker as its administrator."""
    directory = (Path(config[LOG_DIR]) / DIRECTORY).absolute()
    os.environ |= {
        "PENSTOCK_CA": str(directory / CA_FILE),
        "PENSTOCK_USER": ADMIN,
        "PENSTOCK_PASSWORD_FILE": str(directory / PASSWORD_FILE),
    }


def announce(setup: SecureSetup, context: str, has_http: bool) -> None:
    if setup.password is not None:
        print(
            f"created user {ADMIN} with the password {setup.password} (kept in {setup.password_file})",
            flush=True,
        )
    print(f"commands use the context {context}; the authority of all certificates is {setup.ca}", flush=True)
    if has_http:
        print(
            f"HTTP uses TLS and the same users: curl --cacert {setup.ca} -u {ADMIN} https://...", flush=True
        )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
