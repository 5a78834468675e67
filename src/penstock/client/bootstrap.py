"""Bootstrap addresses, and the check that a broker responds at one of them before a client is created.

Without the check, librdkafka retries for a long time and does not report the reason.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from penstock.client.errors import BrokerUnreachable, InvalidSetting, from_kafka
from penstock.client.probe import is_plaintext, probe
from penstock.model import Address
from penstock.unreachable import Unreachable

DEFAULT_BOOTSTRAP = "localhost:9092"
VARIABLE = "PENSTOCK_BOOTSTRAP"
CONNECT_TIMEOUT_S = 5.0
RETRY_S = 0.1
REPEAT_S = 10.0

logger = logging.getLogger("penstock.client")


class Reached(NamedTuple):
    """A cluster that a client can connect to."""

    settings: dict[str, Any]
    """librdkafka settings that every client uses."""
    api_keys: frozenset[int]
    """API keys that the broker supports; empty if no broker was asked."""


def client_settings(
    bootstrap: str | None, connect_timeout_s: float, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings of every client once a broker has responded at one of the addresses."""
    return reach(bootstrap, connect_timeout_s, config).settings


def reach(
    bootstrap: str | None, connect_timeout_s: float, config: Mapping[str, Any] | None = None
) -> Reached:
    """Wait until a broker responds at one of the addresses; a timeout of 0 skips the check.

    `config` holds the caller's own settings by librdkafka's names; with TLS only the TCP connection is
    checked.
    """
    chosen = bootstrap or os.environ.get(VARIABLE) or DEFAULT_BOOTSTRAP
    given = {**_security(), **(config or {})}
    addresses = [_parse(text.strip()) for text in chosen.split(",")]
    api_keys: frozenset[int] = frozenset()
    if connect_timeout_s > 0:
        plaintext = is_plaintext(given.get("security.protocol"))
        api_keys = _wait_until_reachable(addresses, connect_timeout_s, plaintext)
    # librdkafka's own log lines would repeat the errors that `error_cb` receives.
    settings = {
        "bootstrap.servers": chosen,
        "client.id": "penstock",
        "log_level": 0,
        "error_cb": TroubleLog(),
        **_security(),
    }
    return Reached(settings, api_keys)


def _security() -> dict[str, Any]:
    """Return the settings for listeners with TLS or SASL, from environment variables."""
    if not any(name in os.environ for name in ("PENSTOCK_CA", "PENSTOCK_USER")):
        return {}
    from penstock.internal_client.client_security import ClientSecurity

    return ClientSecurity.from_environment(os.environ).librdkafka()


class TroubleLog:
    """Logger for errors from which the library recovers by reconnecting.

    Each error code is logged once per interval, because the library may retry hundreds of times a second.
    """

    def __init__(self) -> None:
        self._silent_until: dict[int, float] = {}

    def __call__(self, error: KafkaError) -> None:
        now = time.monotonic()
        if now >= self._silent_until.get(error.code(), 0.0):
            self._silent_until[error.code()] = now + REPEAT_S
            logger.warning("%s", from_kafka(error, "connection"))


def _parse(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidSetting(f"the bootstrap address {text!r} is not HOST:PORT")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def _wait_until_reachable(addresses: list[Address], timeout_s: float, plaintext: bool) -> frozenset[int]:
    deadline = time.monotonic() + timeout_s
    while True:
        problems: dict[Address, OSError] = {}
        for address in addresses:
            try:
                return _try(address, max(RETRY_S, deadline - time.monotonic()), plaintext)
            except OSError as error:
                problems[address] = error
        unreachable = Unreachable(problems)
        if unreachable.is_wrong_port:
            raise BrokerUnreachable(str(unreachable))
        if time.monotonic() + RETRY_S > deadline:
            raise BrokerUnreachable(
                f"{unreachable}; start one with `penstock broker --data-dir data`, "
                f"or name another with bootstrap='HOST:PORT' or {VARIABLE}"
            )
        time.sleep(RETRY_S)


def _try(address: Address, timeout_s: float, plaintext: bool) -> frozenset[int]:
    if plaintext:
        return probe(address.host, address.port, timeout_s)
    socket.create_connection((address.host, address.port), timeout_s).close()
    return frozenset()
