"""Consecutive free ports, for commands that take the first port of several."""

from __future__ import annotations

import random
import socket

BELOW_OUTGOING = range(20_000, 31_000)
"""Ports outside of the range that Linux uses for outgoing connections."""


def free_range(count: int) -> int:
    """Find this many consecutive ports without a listener, and return the first."""
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
