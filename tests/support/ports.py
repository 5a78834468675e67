"""Ports in a row, for what is given the first of several."""

from __future__ import annotations

import random
import socket

BELOW_OUTGOING = range(20_000, 31_000)
"""The system takes none of these for connections that somebody makes meanwhile."""


def free_range(count: int) -> int:
    """The first of so many that nobody listens on."""
    while True:
        first = random.choice(BELOW_OUTGOING)
        probes = [socket.socket() for _ in range(count)]
        try:
            for number, probe in enumerate(probes):
                probe.bind(("127.0.0.1", first + number))
            return first
        except OSError:
            continue
        finally:
            for probe in probes:
                probe.close()
