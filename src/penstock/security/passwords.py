"""Checks of passwords against SCRAM records, for PLAIN and HTTP: in a thread pool, with a small cache of
correct ones.

Each check derives a key, which takes milliseconds of processor time. Hosts take turns, so that a host that
guesses passwords delays only its own logins. Loop thread only.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict, deque
from random import Random  # noqa: TID251 - the type; the numbers come from the environment

from penstock.security.scram import ScramMechanism, ScramRecord, has_password
from penstock.threads import Threads

MAX_CACHED = 1_000
MAX_WAITING_PER_HOST = 200
_CONCURRENT = 2


class TooManyLogins(Exception):
    """Too many password checks for the client's host are waiting."""


class PasswordChecks:
    def __init__(self, threads: Threads, random: Random) -> None:
        self._threads = threads
        self._key = random.randbytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        """Keyed digests of correct passwords together with the credential id of their user, least recently
        used first.
        """
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._running = 0

    async def is_right(
        self, host: str, credential: str, mechanism: ScramMechanism, record: ScramRecord, password: str
    ) -> bool:
        """Check a password. `credential` identifies the version of the user's credentials. Raises TooManyLogins."""
        digest = hmac.digest(self._key, f"{credential}\0{mechanism}\0{password}".encode(), "sha256")
        if digest in self._right:
            self._right.move_to_end(digest)
            return True
        await self._turn(host)
        try:
            is_right = await self._threads.run("passwords", lambda: has_password(mechanism, record, password))
        finally:
            self._running -= 1
            self._wake_next()
        if is_right:
            self._right[digest] = None
            if len(self._right) > MAX_CACHED:
                self._right.popitem(last=False)
        return is_right

    async def _turn(self, host: str) -> None:
        """Wait for a turn of the host."""
        if self._running < _CONCURRENT:
            self._running += 1
            return
        queue = self._waiting.setdefault(host, deque())
        if len(queue) >= MAX_WAITING_PER_HOST:
            raise TooManyLogins
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._running -= 1
                self._wake_next()
            raise

    def _wake_next(self) -> None:
        while self._waiting and self._running < _CONCURRENT:
            host, queue = self._waiting.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._waiting[host] = queue  # The host comes after the other hosts.
            if not turn.done():
                self._running += 1
                turn.set_result(None)
