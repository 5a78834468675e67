"""An asyncio event loop in virtual time: when nothing is ready, the clock jumps to the next timer.

The loop has no sockets, threads or signals, so that callbacks and the seed decide everything. Callbacks of
one instant run in their order, or shuffled by the seed; those of a crashed process are dropped, those of a
paused one wait. Only simulations and tests use this loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
import warnings
from asyncio import Handle, TimerHandle, events
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, TypeVar, TypeVarTuple, cast

from simulation.machine.process import PROCESS, SimulatedCrash, SimulatedProcess

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SimulationDeadlock(Exception):
    """Nothing is ready and no timer is set, but the main task is not done."""


class SimulationLivelock(Exception):
    """Too many callbacks have run without an advance of time."""


class _SimulationFuture(asyncio.Future[T]):
    """A future whose hash is not its address, so that a set of futures has the same order in every run."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _SimulationTask(asyncio.Task[T]):
    def __init__(
        self,
        coroutine: Generator[Any, None, T] | Coroutine[Any, Any, T],
        loop: SimulationLoop,
        name: str | None,
        context: Context,
    ) -> None:
        self._number = loop.next_number()
        self.process = context.get(PROCESS)
        super().__init__(coroutine, loop=loop, name=name or f"task-{self._number}", context=context)

    def __hash__(self) -> int:
        return self._number


class SimulationLoop(asyncio.AbstractEventLoop):
    def __init__(self, shuffle: random.Random | None = None, callbacks_per_instant: int = 200_000) -> None:
        """`shuffle` orders the callbacks that are ready together; without it they run in their order."""
        self.unhandled: list[dict[str, Any]] = []
        """The contexts that reached the exception handler; the simulation decides whether they are failures."""
        self.steps = 0
        self._shuffle = shuffle
        self._callbacks_per_instant = callbacks_per_instant
        self._time = 0.0
        self._numbers = 0
        self._ready: list[tuple[Handle, SimulatedProcess | None]] = []
        self._timers: list[tuple[float, float, int, TimerHandle, SimulatedProcess | None]] = []
        self._tasks: set[_SimulationTask[Any]] = set()
        self._stopping = False
        self._closed = False

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # --- time and callbacks

    def time(self) -> float:
        return self._time

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Handle:
        self._check_open()
        context = copy_context() if context is None else context
        handle = Handle(callback, args, self, context)
        self._ready.append((handle, context.get(PROCESS)))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        self._check_open()
        context = copy_context() if context is None else context
        handle = TimerHandle(when, callback, args, self, context)
        tie = self._shuffle.random() if self._shuffle else 0.0
        heapq.heappush(self._timers, (when, tie, self.next_number(), handle, context.get(PROCESS)))
        return handle

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Do nothing: asyncio reports a cancelled timer, which is skipped when its time comes."""

    # --- futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        return _SimulationFuture(self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        self._check_open()
        context = copy_context() if context is None else context
        task = _SimulationTask(coro, self, name, context)
        # A strong reference until it is done: a task of a dead process must not be finalized by a collection.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Return False: debug mode measures real time."""

    # --- running

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        main = asyncio.ensure_future(cast(Awaitable[T], future), loop=self)
        main.add_done_callback(lambda _: self.stop())
        self.run_forever()
        return main.result()

    def run_forever(self) -> None:
        self._check_open()
        self._stopping = False
        events._set_running_loop(self)
        try:
            while not self._stopping:
                self._run_instant()
        finally:
            events._set_running_loop(None)

    def _run_instant(self) -> None:
        """Run everything that is ready, then jump to the next timer."""
        count = 0
        while self._ready and not self._stopping:
            batch, self._ready = self._ready, []
            if self._shuffle:
                self._shuffle.shuffle(batch)
            count += self._run_batch(batch)
            if count > self._callbacks_per_instant:
                raise SimulationLivelock(
                    f"{count} callbacks at {self._time:.6f} s without the time moving on"
                )
        if not self._stopping:
            self._advance()

    def _run_batch(self, batch: list[tuple[Handle, SimulatedProcess | None]]) -> int:
        for handle, process in batch:
            if not handle.cancelled() and _is_live(process):
                if process is not None and process.is_paused:
                    process.held.append(handle)
                else:
                    self.steps += 1
                    handle._run()
        return len(batch)

    def resume(self, process: SimulatedProcess) -> None:
        """Resume a paused process, with all callbacks that were due meanwhile."""
        process.is_paused = False
        held, process.held = process.held, []
        self._ready += [(handle, process) for handle in held]

    def _advance(self) -> None:
        timers = self._timers
        while timers and (timers[0][3].cancelled() or not _is_live(timers[0][4])):
            heapq.heappop(timers)
        if not timers:
            waiting = "\n".join(
                repr(task) for task in sorted(self._tasks, key=hash) if _is_live(task.process)
            )
            raise SimulationDeadlock(f"nothing is left to happen at {self._time:.6f} s; waiting:\n{waiting}")
        self._time = max(self._time, timers[0][0])
        while timers and timers[0][0] <= self._time:
            _, _, _, handle, process = heapq.heappop(timers)
            self._ready.append((handle, process))

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Drop all callbacks and tasks that are left, those of dead processes too, without running them."""
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in sorted(self._tasks, key=hash):
                _discard(task)
            self._tasks.clear()

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: async generators are closed by the code that iterates them."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: blocking work goes through `SimulatedThreads`."""

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the simulation is over")

    # --- errors

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed and not isinstance(context.get("exception"), SimulatedCrash):
            self.unhandled.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)


def new_loop(shuffle: random.Random | None = None, callbacks_per_instant: int = 200_000) -> SimulationLoop:
    """A loop; arguments as those of its class.

    Sockets, signals and processes stay unimplemented methods of AbstractEventLoop, which raise an error.
    """
    return SimulationLoop(shuffle, callbacks_per_instant)  # type: ignore[abstract]


def _is_live(process: SimulatedProcess | None) -> bool:
    return process is None or process.alive


def _discard(task: asyncio.Task[Any]) -> None:
    """Close the coroutine of a task now, so that no collection finds it pending later."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    with contextlib.suppress(BaseException):
        if coroutine is not None:
            coroutine.close()
