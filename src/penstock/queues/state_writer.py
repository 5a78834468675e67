"""Writes the changes of a share-partition to `__share_group_state`, one write at a time.

Decisions that are made during a write are in the next write, so that the cost of an acknowledgement decreases under
load. A failed write is repeated, together with later changes, until it succeeds or this leader is fenced. Loop thread
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock.errors import BrokerError, ErrorCode
from penstock.model import ShareKey
from penstock.observability.logs import Logger
from penstock.queues.share_partition import SharePartition
from penstock.queues.state_client import RETRIABLE, ShareStateClient
from penstock.queues.states import StateUpdate

RETRY_SECONDS = 0.1

Stored = Callable[[BrokerError | None], None]
"""Callback for decisions: called with None when they are durable, or with the error for the waiting client."""


class WriterOwner(Protocol):
    """The part of `ShareLeader` that the writer uses."""

    @property
    def states(self) -> ShareStateClient: ...

    @property
    def logger(self) -> Logger: ...

    @property
    def write_timeout_ms(self) -> int: ...

    def now_ms(self) -> int: ...

    def dated(self, update: StateUpdate) -> StateUpdate:
        """Convert the times of an update to wall-clock times."""

    def close(self, error: BrokerError) -> None:
        """Close the share-partition, because the coordinator has refused a write permanently."""

    def wake(self) -> None: ...


class StateWriter:
    def __init__(
        self, key: ShareKey, partition: SharePartition, epochs: tuple[int, int], owner: WriterOwner
    ) -> None:
        """`epochs` are the state epoch and the leader epoch."""
        self.is_stalled = False
        """True if the last write has failed."""
        self._key = key
        self._name = key.name
        self._partition = partition
        self._epochs = epochs
        self._owner = owner
        self._unstored: list[tuple[int, Stored]] = []
        """Callbacks for decisions that are not in a write yet, each with the time of its `store` in milliseconds."""
        self._in_flight: list[tuple[int, Stored]] = []
        self._update: StateUpdate | None = None
        """Changes in the present write, or in the last one."""
        self._is_begun = False
        """True if a write is in progress, or scheduled for the next turn of the event loop or the end of a pause."""
        self._pause: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        """Running write to another broker; None without one."""
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """True if there are changes that are not stored yet."""
        return self._partition.has_changes or self._is_begun

    def store(self, stored: Stored | None) -> None:
        """Write the changes; `stored` is called when all decisions up to now are durable."""
        if not self.is_busy:
            if stored is not None:
                stored(None)
            return
        if stored is not None:
            entry = (self._owner.now_ms(), stored)
            (self._unstored if self._partition.has_changes else self._in_flight).append(entry)
        if not self._is_begun:
            self._is_begun = True
            # In the next turn, so that requests that arrive together share one write.
            self._owner.states.write_soon(self._write)

    def close(self, error: BrokerError) -> None:
        """Stop writing, and call all waiting callbacks with the error."""
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        waiting, self._unstored, self._in_flight = [*self._in_flight, *self._unstored], [], []
        for _, stored in waiting:
            stored(error)

    def _write(self) -> None:
        """Begin a write of all changes; later changes will be in the next write."""
        self._is_begun = not self._is_closed and self._partition.has_changes
        if not self._is_begun:
            return
        update = self._update = self._owner.dated(self._partition.take_update())
        self._in_flight += self._unstored
        self._unstored = []
        try:
            if not self._owner.states.store_here(self._key, self._name, self._epochs, update, self._on_done):
                self._task = asyncio.get_running_loop().create_task(self._write_elsewhere(update))
        except BrokerError as error:
            self._on_done(error)
        except Exception as error:  # noqa: BLE001 - acknowledgements must not wait for ever
            self._fail(error)

    async def _write_elsewhere(self, update: StateUpdate) -> None:
        try:
            await self._owner.states.write(self._key, self._epochs, update)
        except BrokerError as error:
            self._on_done(error)
        except Exception as error:  # noqa: BLE001 - acknowledgements must not wait for ever
            self._fail(error)
        else:
            self._on_done(None)

    def _fail(self, error: Exception) -> None:
        self._owner.logger.error(
            "state of share-partition could not be written", error, share_partition=self._name
        )
        self._owner.close(BrokerError(ErrorCode.unknown_server_error, "the share-partition was not stored"))

    def _on_done(self, error: BrokerError | None) -> None:
        if self._is_closed:
            return
        if error is None:
            self._on_written()
            self._write()
        elif error.code in RETRIABLE:
            assert self._update is not None
            self._partition.restore_changes(self._update)
            self._stall(error)
        else:
            self._owner.close(error)

    def _on_written(self) -> None:
        if self.is_stalled:
            self.is_stalled = False
            self._owner.wake()
        while self._in_flight:  # a callback may add another callback for decisions that are stored now
            in_flight, self._in_flight = self._in_flight, []
            for _, stored in in_flight:
                stored(None)

    def _stall(self, error: BrokerError) -> None:
        """Schedule the repetition of a failed write; callbacks that wait longer than the write timeout get an error."""
        self.is_stalled = True
        late_ms = self._owner.now_ms() - self._owner.write_timeout_ms
        waiting, self._in_flight = self._in_flight, []
        for since_ms, stored in waiting:
            if since_ms <= late_ms:
                stored(BrokerError(ErrorCode.request_timed_out, f"not stored in time: {error}"))
            else:
                self._in_flight.append((since_ms, stored))
        self._pause = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._write)
