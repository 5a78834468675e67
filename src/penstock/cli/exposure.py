"""Addresses that other machines can reach without authentication. They are refused; if the user accepts them, a warning
is logged.

A data directory created by a version without authentication only causes a warning, so that an upgraded broker starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.cli.failures import ExitCode, Failure
from penstock.config import (
    HOST,
    HTTP_AUTHENTICATION_ENABLE,
    HTTP_PORT,
    LOG_DIR,
    SSL_CLIENT_AUTH,
    BrokerConfig,
    ClientAuthentication,
    Listener,
    SecurityProtocol,
)
from penstock.observability.logs import Logger

MARKER = "authentication-required"
"""Name of a marker file in data directories. A broker with the file does not start if other machines could reach it
without authentication, unless the user accepts this.
"""
_META = "meta.json"


def open_places(config: BrokerConfig, *, is_gateway: bool = False) -> Iterator[str]:
    """Yield the addresses that other machines can reach without user or certificate. A gateway has only HTTP."""
    for listener in () if is_gateway else config.listeners:
        if not _is_loopback(listener.address.host) and not _authenticates(config, listener):
            yield f"{listener.name} at {listener.address}"
    if config[HTTP_PORT] >= 0 and not _is_loopback(config[HOST]) and not config[HTTP_AUTHENTICATION_ENABLE]:
        yield f"HTTP at {config[HOST]}:{config[HTTP_PORT]}"


def refuse_open_places(config: BrokerConfig, *, is_insecure: bool) -> None:
    """Raise Failure if other machines could reach the broker without authentication, unless `is_insecure` is set or the
    data directory is from an older version.
    """
    directory = Path(config[LOG_DIR])
    is_older = (directory / _META).exists() and not (directory / MARKER).exists()
    if is_older or is_insecure:
        return
    for place in open_places(config):
        raise Failure(
            f"{place} would serve other machines without authentication",
            "Start with --secure, set users up as docs/security.md shows, or accept it with --insecure.",
            code=ExitCode.USAGE,
        )


def mark_directory(config: BrokerConfig) -> None:
    """Write the marker into a new data directory; directories of older versions stay without it. Must be called before
    the broker starts.
    """
    directory = Path(config[LOG_DIR])
    if not (directory / _META).exists():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / MARKER).touch()
        except OSError:
            return  # the start of the broker reports the unusable directory


def warn_of_open_places(config: BrokerConfig, log: Logger, *, is_gateway: bool = False) -> None:
    for place in open_places(config, is_gateway=is_gateway):
        log.warning("no authentication: all clients of this address can read and write", address=place)


def _authenticates(config: BrokerConfig, listener: Listener) -> bool:
    if listener.protocol is SecurityProtocol.SSL:
        return config.for_listener(listener.name)[SSL_CLIENT_AUTH] is ClientAuthentication.REQUIRED
    return listener.protocol.has_sasl


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
