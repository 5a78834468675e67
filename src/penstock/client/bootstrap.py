"""Where the brokers are, and whether anybody is there.

We try the addresses ourselves before a client is made: librdkafka goes on trying for long and does not say why.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import Any

from confluent_kafka import KafkaError

from penstock.client.errors import BrokerUnreachable, InvalidSetting, from_kafka

DEFAULT_BOOTSTRAP = "localhost:9092"
VARIABLE = "PENSTOCK_BOOTSTRAP"
CONNECT_TIMEOUT_S = 5.0
RETRY_S = 0.1
REPEAT_S = 10.0

logger = logging.getLogger("penstock.client")


def client_settings(bootstrap: str | None, connect_timeout_s: float) -> dict[str, Any]:
    """What every client is made with, once one of the addresses has answered."""
    chosen = bootstrap or os.environ.get(VARIABLE) or DEFAULT_BOOTSTRAP
    addresses = [_parse(text.strip()) for text in chosen.split(",")]
    if connect_timeout_s > 0:
        _wait_until_reachable(addresses, connect_timeout_s)
    # Its own lines would repeat what comes to `error_cb`.
    return {"bootstrap.servers": chosen, "client.id": "penstock", "log_level": 0, "error_cb": TroubleLog()}


class TroubleLog:
    """Logs trouble that the library gets over by itself, by connecting again: each kind at intervals, as it may
    try hundreds of times a second.
    """

    def __init__(self) -> None:
        self._silent_until: dict[int, float] = {}

    def __call__(self, error: KafkaError) -> None:
        now = time.monotonic()
        if now >= self._silent_until.get(error.code(), 0.0):
            self._silent_until[error.code()] = now + REPEAT_S
            logger.warning("%s", from_kafka(error, "connection"))


def _parse(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidSetting(f"the bootstrap address {text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _wait_until_reachable(addresses: list[tuple[str, int]], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        problems = []
        for host, port in addresses:
            try:
                socket.create_connection((host, port), max(RETRY_S, deadline - time.monotonic())).close()
            except OSError as error:
                problems.append(f"{host}:{port} ({error.strerror or error})")
            else:
                return
        if time.monotonic() + RETRY_S > deadline:
            raise BrokerUnreachable(
                f"cannot reach a broker at {', '.join(problems)}; start one with `penstock broker --data-dir data`, "
                f"or name another with bootstrap='HOST:PORT' or {VARIABLE}"
            )
        time.sleep(RETRY_S)
