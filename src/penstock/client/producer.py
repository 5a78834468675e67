"""A producer: messages in, batches out, and no failure unheard of.

`send` returns at once; a message that could not be stored is raised by its handle, by the next call, or on leaving.
May be used from several threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from penstock.client.errors import ClientError, TimedOut
from penstock.client.pending import PendingSend, Stored
from penstock.client.producer_options import DELIVERY_TIMEOUT_S, ProducerOptions
from penstock.client.sender import Headers, Sender
from penstock.client.transactions import Transactions, abort_after

if TYPE_CHECKING:
    from penstock.client.consumer import Consumer

WAIT_S = 0.1
"""Waits come in slices, so that Ctrl-C and other threads get through."""

FLUSH_MARGIN_S = 10.0


class Sending:
    """A message on its way, as `Producer.send` returns it."""

    __slots__ = ("_pending", "_sender")

    def __init__(self, sender: Sender, pending: PendingSend) -> None:
        self._sender = sender
        self._pending = pending

    @property
    def done(self) -> bool:
        return self._pending.done

    def result(self, timeout_s: float | None = None) -> Stored:
        """Wait for the broker's answer: where it was stored, or the error that kept it from that."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._pending.done:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimedOut(f"not known after {timeout_s} s what became of the message")
            self._sender.serve(WAIT_S)
        return self._pending.stored


class Transaction:
    """An open one, as `with producer.transaction() as transaction` gives it."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def commit_progress(self, consumer: Consumer) -> None:
        """What the consumer, one with delivery="exactly-once", has handed over is committed with the transaction."""
        offsets = consumer.reader.handed_offsets()
        if offsets:
            self._transactions.add_offsets(offsets, consumer.reader.consumer.consumer_group_metadata())


class Producer:
    def __init__(self, bootstrap: str | None = None, **options: Unpack[ProducerOptions]) -> None:
        """Bootstrap is `host:port`, several with commas; without it PENSTOCK_BOOTSTRAP or localhost:9092."""
        self._give_up_after_s = options.get("delivery_timeout_s", DELIVERY_TIMEOUT_S) + FLUSH_MARGIN_S
        self._sender = Sender(bootstrap, options)
        self._closed = False

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: datetime | int | None = None,
    ) -> Sending:
        """Queue a message; waits only while the queue is full.

        Raises NotDelivered for earlier messages that failed; this one was not sent then.
        """
        if self._closed:
            raise ClientError("the producer is closed")
        while (pending := self._sender.offer(topic, value, key, partition, headers, timestamp)) is None:
            self._sender.serve(WAIT_S)
        self._sender.serve(0)
        return Sending(self._sender, pending)

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: datetime | int | None = None,
    ) -> Stored:
        """Send, and wait until it is stored."""
        return self.send(
            topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp
        ).result()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Exactly once: what is sent inside counts together when the block is left, and not at all after an exception.

        TransactionAborted where it could not be committed: nothing has happened, try again.
        """
        if self._closed:
            raise ClientError("the producer is closed")
        transactions = self._sender.begin()
        try:
            yield Transaction(transactions)
            self._sender.raise_failures()
            transactions.commit()
        except BaseException as error:
            abort_after(error, transactions)
            raise
        finally:
            with suppress(ClientError):
                self._sender.serve(0)
            self._sender.forget_failures()

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent is stored. NotDelivered if something was not, TimedOut if it takes longer."""
        deadline = time.monotonic() + (self._give_up_after_s if timeout_s is None else timeout_s)
        while left := self._sender.flush(WAIT_S):
            if time.monotonic() >= deadline:
                raise TimedOut(f"{left} messages are still on their way")
        self._sender.raise_failures()

    def close(self) -> None:
        """Flush, and raise NotDelivered if anything was lost."""
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
        finally:
            self._sender.close()
        self._sender.raise_failures()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ClientError as failure:
            if error is None:
                raise
            error.add_note(f"besides, {failure}")
