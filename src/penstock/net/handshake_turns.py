"""Order of handshake steps. A step takes up to a millisecond of the loop, so one runs in each turn.

A handshake in progress holds 16 KB more than an idle connection, so handshakes that have begun continue before others
begin, and the C library is told to return the memory of many handshakes to the machine. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_MANY = 100
_REST_SECONDS = 1.0


class HandshakeTurns:
    def __init__(self, on_rest: Callable[[], object] = lambda: None) -> None:
        """`on_rest` is called when none of many handshakes has ended for a second."""
        self._on_rest = on_rest
        self._ended = 0
        """Handshakes that have ended since the last rest."""
        self._continuing: deque[Callable[[], None]] = deque()
        self._beginning: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._continuing) + len(self._beginning)

    def begin(self, step: Callable[[], None]) -> None:
        """Run the first step of a handshake, after the steps of all that have begun."""
        self._beginning.append(step)
        self._schedule()

    def proceed(self, step: Callable[[], None]) -> None:
        """Run a further step of a handshake."""
        self._continuing.append(step)
        self._schedule()

    def ended(self) -> None:
        """Note that a handshake is complete."""
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
