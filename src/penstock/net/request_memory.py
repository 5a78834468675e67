"""Memory that requests of all connections hold together, and the rule that decides which connections stop
reading.

When the limit is reached, only connections that hold more than their fair share stop, so that a few slow
senders of large requests do not starve the others. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable

_LEAST_SHARES = 16


class RequestMemory:
    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        self.connections = 0
        self._limit_bytes = limit_bytes
        self._waiting: dict[Callable[[], None], None] = {}

    def has_room(self, held_bytes: int) -> bool:
        """True if a connection that holds this many bytes may read more."""
        if self.used_bytes < self._limit_bytes:
            return True
        return held_bytes <= self._limit_bytes // max(_LEAST_SHARES, self.connections)

    def take(self, count: int) -> None:
        self.used_bytes += count

    def give_back(self, count: int) -> None:
        self.used_bytes -= count
        if self._waiting and self.used_bytes < self._limit_bytes:
            waiting, self._waiting = self._waiting, {}
            for resume in waiting:
                resume()

    def when_room(self, resume: Callable[[], None]) -> None:
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        self._waiting.pop(resume, None)
