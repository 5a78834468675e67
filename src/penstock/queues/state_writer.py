"""Writes the changes of a share-partition to `__share_group_state`, one write at a time.

Decisions that are made during a write go with the next one, so the cost of an acknowledgement falls under load. A write
that fails is repeated, with the later changes, until it is stored or this leader is fenced. Loop thread only.
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
"""Called when decisions are durable, or with the error of the client that waits for them."""


class WriterOwner(Protocol):
    """The share-partition that is written."""

    @property
    def states(self) -> ShareStateClient: ...

    @property
    def logger(self) -> Logger: ...

    @property
    def write_timeout_ms(self) -> int: ...

    def now_ms(self) -> int: ...

    def dated(self, update: StateUpdate) -> StateUpdate:
        """The update with times of the wall clock."""

    def close(self, error: BrokerError) -> None:
        """Close: the coordinator has refused a write for good."""

    def wake(self) -> None: ...


class StateWriter:
    def __init__(
        self, key: ShareKey, partition: SharePartition, epochs: tuple[int, int], owner: WriterOwner
    ) -> None:
        """`epochs` are the state epoch and the leader epoch."""
        self.is_stalled = False
        """Whether the last write has failed."""
        self._key = key
        self._name = key.name
        self._partition = partition
        self._epochs = epochs
        self._owner = owner
        self._unstored: list[tuple[int, Stored]] = []
        """Callbacks for decisions that no write has yet, each with the time of its call in milliseconds."""
        self._in_flight: list[tuple[int, Stored]] = []
        self._update: StateUpdate | None = None
        """The changes that are written now."""
        self._is_begun = False
        """Whether a write is in progress, or begins in this turn of the loop or after a pause."""
        self._pause: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        """Write to another broker."""
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether something is not stored yet."""
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
            # Not now: decisions of the requests that came together go with one write.
            self._owner.states.write_soon(self._write)

    def close(self, error: BrokerError) -> None:
        """Write nothing more; waiting clients get the error."""
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        waiting, self._unstored, self._in_flight = [*self._in_flight, *self._unstored], [], []
        for _, stored in waiting:
            stored(error)

    def _write(self) -> None:
        """Write the changes, and what was decided meanwhile with the next write."""
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
        self._owner.logger.error("share-partition not stored", error, share_partition=self._name)
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
        while self._in_flight:  # a callback may add another one for what is stored now
            in_flight, self._in_flight = self._in_flight, []
            for _, stored in in_flight:
                stored(None)

    def _stall(self, error: BrokerError) -> None:
        """Pause before a failed write is repeated; acknowledgements that have waited for long get an error."""
        self.is_stalled = True
        late_ms = self._owner.now_ms() - self._owner.write_timeout_ms
        waiting, self._in_flight = self._in_flight, []
        for since_ms, stored in waiting:
            if since_ms <= late_ms:
                stored(BrokerError(ErrorCode.request_timed_out, f"not stored in time: {error}"))
            else:
                self._in_flight.append((since_ms, stored))
        self._pause = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._write)
