"""Base class of shards. A shard is a partition of a coordinator's internal topic while this broker leads it.

A subclass holds the state and makes decisions: it turns a request into records and a response. The shard appends the
records, sends the response when they are committed, and limits the wait. If the log refuses records that the state
already contains, the shard closes and is loaded again. `apply` changes the state according to one record, both for new
records and for records of a replayed log. Loop thread only.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.errors import BrokerError, ErrorCode
from penstock.state_log.appender import Appender, Done, is_stored
from penstock.state_log.timers import Timers

R = TypeVar("R")


class Waiter(Protocol):
    """Response that waits for a commit: a future, or a cheaper object with the same methods."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, error: BrokerError, /) -> None: ...


class _Nobody:
    """Waiter for records without a waiting request; the shard itself handles a refusal."""

    def done(self) -> bool:
        return True

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, error: BrokerError, /) -> None: ...


NOBODY_WAITS: Final = _Nobody()


class CallWaiter:
    """Waiter that calls a function with the outcome. Unlike a future, it needs no further turn of the event loop."""

    __slots__ = ("_call",)

    def __init__(self, call: Done) -> None:
        self._call: Done | None = call

    def done(self) -> bool:
        return self._call is None

    def set_result(self, result: Any, /) -> None:
        self._finish(None)

    def set_exception(self, error: BrokerError, /) -> None:
        self._finish(error)

    def _finish(self, error: BrokerError | None) -> None:
        call, self._call = self._call, None
        if call is not None:
            call(error)


class ShardContext(Protocol):
    """Services of the coordinator that a shard uses."""

    timers: Timers

    def lost(self, shard: Shard[Any]) -> None:
        """Load a shard again that has closed because its log refused records that its state contains."""


class Shard(ABC, Generic[R]):
    def __init__(self, partition: int, appender: Appender[R], context: ShardContext) -> None:
        self.partition = partition
        self.leader_epoch = appender.replica.partition.leader_epoch
        """Leader epoch in which the shard was loaded."""
        self.passed_over_damage = False
        """True if damaged records of the log were skipped when the shard was loaded."""
        self._appender = appender
        self._timers = context.timers
        self._on_lost = context.lost
        self._closed: BrokerError | None = None
        """Error for all requests after the shard has closed; None while it is open."""
        self._waiting: deque[tuple[int, Waiter]] = deque()
        """Responses that wait for a commit, oldest first, each with its deadline (monotonic time in milliseconds)."""

    @property
    def has_failed(self) -> bool:
        """True if the log refuses all writes until the broker restarts."""
        return self._appender.replica.log.failed

    @property
    def is_in_doubt(self) -> bool:
        """True if another broker may lead the partition by now, because this broker has lost its connections."""
        return self._appender.replica.is_in_doubt

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

    # --- what a subclass supplies

    @abstractmethod
    def apply(self, record: R) -> None:
        """Change the state according to the record."""

    @abstractmethod
    def _on_deadline(self, name: str) -> None:
        """Handle a deadline that was scheduled under this name and is due."""

    @abstractmethod
    def _on_close(self, code: ErrorCode) -> None:
        """Respond with this error to requests that wait in the state, and release the state."""

    # --- requests

    def check_open(self) -> None:
        """Raise BrokerError if the shard is closed."""
        if self._closed is not None:
            raise BrokerError(self._closed.code)

    def check_writable(self) -> None:
        """Raise BrokerError if no decision may be made now: the shard is closed, or fewer replicas than
        min.insync.replicas are in sync.
        """
        self.check_open()
        self._appender.check_replicas()

    # --- from a decision to its response

    def write(self, records: Sequence[R]) -> asyncio.Future[None]:
        """Append records that the state contains already; the future is done when they are committed.

        If the log refuses the records, the shard closes.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.write_for(future, records)
        return future

    def write_for(self, waiter: Waiter, records: Sequence[R]) -> None:
        """Append records as `write` does, with a waiter of the caller instead of a future."""
        self._appender.add(records, partial(self._on_written, waiter))

    def _on_written(self, waiter: Waiter, error: BrokerError | None) -> None:
        if not is_stored(error):
            self._lose()
        self.settle(waiter, error)

    def settle(self, waiter: Waiter, error: BrokerError | None) -> None:
        """Complete a response after its records were committed or refused."""
        if error is not None and self.has_failed:
            self._lose()
        if waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(self._closed or _unavailable(error))

    # --- deadlines

    def on_due(self, name: str | None) -> None:
        """Handle a due deadline. The name is None for the deadline of the oldest waiting response."""
        if name is None:
            self._time_out()
        elif self._closed is None:
            self._on_deadline(name)

    def now_ms(self) -> int:
        """Monotonic time in milliseconds."""
        return self._timers.now_ms()

    def _schedule(self, name: str, due_ms: int | None) -> None:
        self._timers.schedule((self.partition, name), due_ms)

    def _limit_wait(self, waiter: Waiter, deadline_ms: int) -> None:
        """Respond with REQUEST_TIMED_OUT if the records are not committed at this monotonic time in
        milliseconds.
        """
        waiting = self._waiting
        while waiting and waiting[0][1].done():
            waiting.popleft()
        waiting.append((deadline_ms, waiter))
        if len(waiting) == 1:
            self._timers.schedule((self.partition, None), deadline_ms)

    def _time_out(self) -> None:
        now_ms, waiting = self.now_ms(), self._waiting
        # If this broker has lost its connections, the client has to find the new coordinator.
        code = ErrorCode.not_coordinator if self.is_in_doubt else ErrorCode.request_timed_out
        while waiting and (waiting[0][1].done() or waiting[0][0] <= now_ms):
            _, waiter = waiting.popleft()
            if not waiter.done():
                waiter.set_exception(
                    BrokerError(code, "the records are stored, but were not committed in time")
                )
        if waiting:
            self._timers.schedule((self.partition, None), waiting[0][0])

    # --- closing

    def close(self, code: ErrorCode) -> None:
        """Respond to all waiting and later requests with this error, and append nothing more.

        The state is released explicitly: while a disk is full, shards are loaded again faster than the garbage
        collector frees the old ones.
        """
        if self._closed is None:
            self._closed = BrokerError(code)
            self._on_close(code)
            self._appender.close(self._closed)

    def _lose(self) -> None:
        if self._closed is None:
            self.close(ErrorCode.coordinator_not_available)
            self._on_lost(self)


def ignore_outcome(future: asyncio.Future[None]) -> None:
    """Mark the error of a future as retrieved, so that asyncio does not report it: the shard has handled it."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


def _unavailable(error: BrokerError) -> BrokerError:
    """Error for a client whose records the log refused. It makes the client find the coordinator and retry."""
    moved = error.code is ErrorCode.not_leader_or_follower
    code = ErrorCode.not_coordinator if moved else ErrorCode.coordinator_not_available
    return BrokerError(code, str(error))
