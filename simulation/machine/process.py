"""A simulated process: the tasks and callbacks that end together when it crashes.

The process of a piece of code is in a context variable, which asyncio passes to every task and callback.
Code of a dead process never runs again, not even its `finally` blocks; simulated parts of the machine ask
`alive` before they act for it. Callbacks of a paused process wait until it is resumed.
"""

from __future__ import annotations

import asyncio
from asyncio import Handle
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """Raised in code that touches the machine when or after its process died.

    Not an `Exception`, so that no handler of the broker can catch it and go on.
    """


class SimulatedProcess:
    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.is_paused = False
        self.held: list[Handle] = []
        """The callbacks that were due while the process was paused."""
        self.ended = asyncio.Event()
        self._context: Context = copy_context()
        self._context.run(PROCESS.set, self)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine as this process; it and everything it starts ends with the process."""
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
