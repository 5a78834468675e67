"""Timer of a coroutine: measures the time that it runs on the event loop, without the time that it waits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class StepTimer(Generic[T]):
    """Awaitable that runs the coroutine and adds up its time. Tasks that the coroutine starts are not included."""

    def __init__(self, work: Coroutine[Any, Any, T], now: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._work = work
        self._now = now

    def __await__(self) -> Generator[Any, Any, T]:
        error: BaseException | None = None
        while True:
            began = self._now()
            try:
                awaited = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.seconds += self._now() - began
            error = None
            try:
                yield awaited
            except BaseException as thrown:  # noqa: BLE001 - the cancellation of the task is for the coroutine
                error = thrown
