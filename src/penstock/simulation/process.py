"""A simulated process: the tasks and callbacks that end together when it crashes.

Which process code belongs to travels in a context variable, as it does through every task and callback of
asyncio. Code of a dead process never runs again, not even its `finally` blocks; whoever models a part of the
machine asks `alive` before acting for it. What is due of a paused one is held until it goes on.
"""

from __future__ import annotations

import asyncio
from asyncio import Handle
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """Raised in code that touches the machine after, or at the moment when, its process died.

    Not an `Exception`, so that no handler of the broker can catch it and go on.
    """


class SimulatedProcess:
    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.is_paused = False
        self.held: list[Handle] = []
        """What was due while it was paused."""
        self.ended = asyncio.Event()
        self._context: Context = copy_context()
        self._context.run(PROCESS.set, self)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as this process; it and everything it starts ends with the process."""
        return asyncio.get_running_loop().create_task(coroutine, context=self._context.copy())

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as this process and wait for it; SimulatedCrash when the process dies before."""
        task = self.spawn(coroutine)
        death = asyncio.ensure_future(self.ended.wait())
        await asyncio.wait((task, death), return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        if not self.alive:
            raise SimulatedCrash
        return task.result()

    def end(self) -> None:
        self.alive = False
        self.ended.set()


PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("PROCESS", default=None)
