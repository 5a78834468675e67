"""Watch over long polls and streams: they end soon after their login or a permission of their user has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.errors import PenstockError
from penstock.gateway.authorization import Authorize, Check, Learn
from penstock.gateway.http.users import HttpUsers
from penstock.net.acting import Actor, acting_for
from penstock.security.http_session import HttpLogin

INTERVAL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Lasting:
    login: HttpLogin
    client: str
    checks: Sequence[Check]


class LoginWatch:
    """Checks the lasting requests periodically, and cancels their tasks. Loop thread only."""

    def __init__(self, users: HttpUsers, authorize: Authorize, learn: Learn) -> None:
        self._users = users
        self._authorize = authorize
        self._learn = learn
        self._lasting: dict[asyncio.Task[None], _Lasting] = {}
        self._ended: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, task: asyncio.Task[None], login: HttpLogin, client: str, checks: Sequence[Check]) -> None:
        """Watch the task of a request: cancel it when the login or one of the permissions in `checks` has ended."""
        self._lasting[task] = _Lasting(login, client, checks)
        task.add_done_callback(self._forget)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def require(self, task: asyncio.Task[None], checks: Sequence[Check]) -> None:
        """Add permissions to those of a watched task."""
        known = self._lasting[task]
        self._lasting[task] = replace(known, checks=(*known.checks, *checks))

    def has_ended(self, task: asyncio.Task[None]) -> bool:
        """True if the watch has cancelled this task."""
        return task in self._ended

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._lasting.pop(task, None)
        self._ended.discard(task)

    async def _run(self) -> None:
        while self._lasting:
            await asyncio.sleep(INTERVAL_SECONDS)
            for task, lasting in tuple(self._lasting.items()):
                # Keep the requests while no broker responds: they get no new messages either.
                with suppress(PenstockError, OSError):
                    if not await self._is_allowed(lasting) and task in self._lasting:
                        self._ended.add(task)
                        task.cancel()
        self._task = None

    async def _is_allowed(self, lasting: _Lasting) -> bool:
        if not await self._users.accounts.is_current(lasting.login):
            return False
        acting_for.set(Actor(lasting.login.user, lasting.client))
        await self._learn(lasting.client, lasting.checks)
        return all(self._authorize(lasting.client, *check) for check in lasting.checks)
