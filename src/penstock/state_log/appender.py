"""Appends the records of a shard to its log. Records that are added in one turn of the event loop share a batch.

The callback of a call to `add` runs when its records, and all records added before, are committed or refused. Callbacks
run in the order of the calls. A call without records waits for the records before it, so that no client gets a response
that a power loss can revoke. Records of a client's transaction have a batch of their own.

`check_replicas` refuses requests while fewer replicas than min.insync.replicas are in sync; a shard calls it before it
makes a decision for a client. Records that were appended before, or by a timer, can still be committed: their callbacks
then get NOT_ENOUGH_REPLICAS_AFTER_APPEND, which `is_stored` distinguishes from a refusal. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from penstock.clock import Clock
from penstock.errors import BrokerError, ErrorCode
from penstock.records.batch import BatchHeader
from penstock.records.plain_batch import build_plain_batch, encode_plain_record
from penstock.replication.replica import Replica

MAX_BATCH_BYTES = 1_000_000
"""Size in bytes at which a batch is closed. Records of one call to `add` are never split."""

R = TypeVar("R")
Done = Callable[[BrokerError | None], None]
Encode = Callable[[R], tuple[bytes, bytes | None]]
"""Function that encodes a record as key and value; the value of a tombstone is None."""


def is_stored(error: BrokerError | None) -> bool:
    """True if the records are committed to the log, even if the client gets an error."""
    return error is None or error.code is ErrorCode.not_enough_replicas_after_append


def under_min_insync(replica: Replica) -> BrokerError:
    """Error for a request that is refused because fewer replicas than min.insync.replicas are in sync."""
    return BrokerError(
        ErrorCode.coordinator_not_available,
        f"{replica.name} has fewer in-sync replicas than min.insync.replicas; try again later",
    )


class _Batch:
    """Encoded records that are appended together, and the callbacks for their outcome."""

    __slots__ = ("records", "size_bytes", "waiting")

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.size_bytes = 0
        self.waiting: list[Done] = []

    def add(self, key: bytes, value: bytes | None) -> None:
        record = encode_plain_record(len(self.records), key, value)
        self.records.append(record)
        self.size_bytes += len(record)

    def finish(self, error: BrokerError | None) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(error)


class Appender(Generic[R]):
    def __init__(self, replica: Replica, clock: Clock, encode: Encode[R]) -> None:
        self.replica = replica
        self._encode = encode
        self._clock = clock
        self._collected: deque[_Batch] = deque()
        self._uncommitted: deque[_Batch] = deque()
        """Batches that are not appended yet or not committed yet, in log order."""
        self._closed: BrokerError | None = None

    def check_replicas(self) -> None:
        """Raise BrokerError if fewer replicas than min.insync.replicas are in sync."""
        if self.replica.is_under_min_insync:
            raise under_min_insync(self.replica)

    def add(self, records: Sequence[R], done: Done) -> None:
        """Append the records in one batch. `done` is called later; at once if no records are given and none precede."""
        self.add_encoded([self._encode(record) for record in records], done)

    def add_encoded(self, records: Sequence[tuple[bytes, bytes | None]], done: Done) -> None:
        """Append encoded records, pairs of key and value, as `add` does."""
        if self._closed is not None:
            done(self._closed)
        elif records:
            batch = self._open_batch()
            for key, value in records:
                batch.add(key, value)
            batch.waiting.append(done)
        elif self._uncommitted:
            self._uncommitted[-1].waiting.append(done)
        else:
            done(None)

    def build_transactional(
        self, records: Sequence[R], producer_id: int, producer_epoch: int
    ) -> tuple[memoryview, BatchHeader]:
        """Build the batch for `add_transactional`. The batch has no sequence number: a coordinator never
        retries a batch.
        """
        encoded = [encode_plain_record(place, *self._encode(record)) for place, record in enumerate(records)]
        batch, header = build_plain_batch(
            encoded,
            self._clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=True,
        )
        return memoryview(batch), header

    def add_transactional(self, content: memoryview, header: BatchHeader, done: Done) -> None:
        """Append a batch whose transaction the replica has verified; `done` is called as by `add`."""
        self.append_collected()
        if self._closed is not None:  # also by the refusal of records that were added before
            done(self._closed)
            return
        batch = _Batch()
        batch.waiting.append(done)
        self._uncommitted.append(batch)
        try:
            self._append(batch, content, header, self._clock.now_ms())
        except BrokerError as error:
            self._finish(batch, error)

    def close(self, error: BrokerError) -> None:
        """Stop appending, and call all pending callbacks with the error."""
        self._closed = error
        self._collected.clear()
        while self._uncommitted:
            self._uncommitted.popleft().finish(error)

    def _open_batch(self) -> _Batch:
        if not self._collected:
            asyncio.get_running_loop().call_soon(self.append_collected)
        if not self._collected or self._collected[-1].size_bytes >= MAX_BATCH_BYTES:
            batch = _Batch()
            self._collected.append(batch)
            self._uncommitted.append(batch)
        return self._collected[-1]

    def append_collected(self) -> None:
        """Append all collected records now instead of at the end of the turn of the event loop.

        A callback may call this method again. Therefore each call takes the oldest remaining batch.
        """
        now_ms = self._clock.now_ms()
        for _ in range(len(self._collected)):
            if not self._collected:
                return
            batch = self._collected.popleft()
            content, header = build_plain_batch(batch.records, now_ms)
            batch.records.clear()
            try:
                self._append(batch, memoryview(content), header, now_ms)
            except BrokerError as error:
                self._refuse(batch, error)
                return

    def _refuse(self, batch: _Batch, error: BrokerError) -> None:
        """Refuse a batch and all later batches: their records depend on those of this batch and must not be in the log
        without them.
        """
        refused = (batch, *self._collected)
        self._collected.clear()
        for each in refused:
            self._finish(each, error)

    def _append(self, batch: _Batch, content: memoryview, header: BatchHeader, now_ms: int) -> None:
        info = self.replica.append_as_leader(content, header, now_ms)
        if self.replica.when_committed(info, partial(self._finish, batch)):
            self._finish(batch, None)

    def _finish(self, batch: _Batch, error: BrokerError | None) -> None:
        if batch in self._uncommitted:
            self._uncommitted.remove(batch)
            if error is None and self.replica.is_under_min_insync:
                error = BrokerError(
                    ErrorCode.not_enough_replicas_after_append,
                    f"stored, but {self.replica.name} has fewer in-sync replicas than min.insync.replicas",
                )
            batch.finish(error)
