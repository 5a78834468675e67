"""Order of handshake steps. A step takes up to a millisecond of the loop, so only one runs in each turn.

A handshake in progress holds 16 KB more than an idle connection. Handshakes that have begun therefore
continue before others begin. After many handshakes, `on_rest` can tell the C library to return their memory
to the system. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_MANY = 100
_REST_SECONDS = 1.0


class HandshakeTurns:
    def __init__(self, on_rest: Callable[[], object] = lambda: None) -> None:
        """`on_rest` is called when many handshakes have ended and none has for a second."""
        self._on_rest = on_rest
        self._ended = 0
        """Number of handshakes that have ended since the last call of `on_rest`."""
        self._continuing: deque[Callable[[], None]] = deque()
        self._beginning: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._continuing) + len(self._beginning)

    def begin(self, step: Callable[[], None]) -> None:
        """Schedule the first step of a handshake, after the steps of all handshakes that have begun."""
        self._beginning.append(step)
        self._schedule()

    def proceed(self, step: Callable[[], None]) -> None:
        """Schedule a further step of a handshake that has begun."""
        self._continuing.append(step)
        self._schedule()

    def ended(self) -> None:
        """Record that a handshake is complete."""
        self._ended += 1
        if self._ended == _MANY:
            self._await_rest()

    def _await_rest(self) -> None:
        asyncio.get_running_loop().call_later(_REST_SECONDS, self._rest, self._ended)

    def _rest(self, ended_before: int) -> None:
        if self._ended != ended_before:
            self._await_rest()
            return
        self._ended = 0
        self._on_rest()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        (self._continuing or self._beginning).popleft()()
        if self:
            self._schedule()
