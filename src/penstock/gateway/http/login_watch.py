"""Watch over requests that last, as long polls and streams: they end soon after their user or its rights change."""

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
    """Loop thread only."""

    def __init__(self, users: HttpUsers, authorize: Authorize, learn: Learn) -> None:
        self._users = users
        self._authorize = authorize
        self._learn = learn
        self._lasting: dict[asyncio.Task[None], _Lasting] = {}
        self._ended: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, task: asyncio.Task[None], login: HttpLogin, client: str, checks: Sequence[Check]) -> None:
        """Cancel the task when its login or one of its permissions is gone."""
        self._lasting[task] = _Lasting(login, client, checks)
        task.add_done_callback(self._forget)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def require(self, task: asyncio.Task[None], checks: Sequence[Check]) -> None:
        """Cancel a task that was added also when one of these permissions is gone."""
        known = self._lasting[task]
        self._lasting[task] = replace(known, checks=(*known.checks, *checks))

    def has_ended(self, task: asyncio.Task[None]) -> bool:
        """Whether the watch has cancelled this task."""
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
                # While no broker responds the requests stay: they get nothing new either.
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
