"""The trace of a simulation: every event in order, folded into one digest and kept as text on request.

Two runs of one seed must end with equal digests. Events come from the simulated machine (disk, network,
threads) and from clients; they must not depend on addresses, hash seeds or real time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable


class Trace:
    def __init__(self, now: Callable[[], float], sink: Callable[[str], None] | None = None) -> None:
        """`sink` takes each event as a line of text."""
        self.events = 0
        self._now = now
        self._sink = sink
        self._hash = hashlib.blake2b(digest_size=16)

    def record(self, kind: str, *details: object) -> None:
        line = f"{self._now():.6f} {kind} {' '.join(map(str, details))}\n"
        self._hash.update(line.encode())
        self.events += 1
        if self._sink is not None:
            self._sink(line)

    def close(self) -> None:
        """Stop recording: events after the end of the simulation are no part of it."""
        self._sink = None

    def digest(self) -> str:
        return self._hash.hexdigest()
