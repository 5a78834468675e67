"""Free ports, and bounded waits for the first response of a server."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable

from bench.frames import api_versions_request

POLL_S = 0.002
BELOW_EPHEMERAL = (15_000, 32_000)


class NotReady(Exception):
    """A server did not respond in time."""


def free_ports(count: int) -> list[int]:
    """Ports without a listener, in no order."""
    return [free_port_range(1) for _ in range(count)]


def free_port_range(count: int) -> int:
    """First of this many consecutive ports without a listener, outside of the range of outgoing connections."""
    while True:
        first = random.randrange(*BELOW_EPHEMERAL)
        if all(_is_free(port) for port in range(first, first + count)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_for_answer(port: int, timeout_s: float, alive: Callable[[], bool]) -> None:
    """Return once the Kafka port has answered an ApiVersions request."""
    deadline = time.monotonic() + timeout_s
    while not _answers(port):
        if not alive():
            raise NotReady("the server process ended before it answered; see its log")
        if time.monotonic() > deadline:
            raise NotReady(f"no answer on port {port} within {timeout_s:.0f} s")
        time.sleep(POLL_S)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(api_versions_request(correlation_id=1))
            head = connection.recv(8, socket.MSG_WAITALL)
            return len(head) == 8 and struct.unpack(">ii", head)[1] == 1
    except OSError:
        return False
