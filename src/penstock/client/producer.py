"""A producer: queues messages, sends them in batches, and reports every failure.

`send` returns at once. A delivery failure is raised by the handle that `send` returned, by the next call, or
by `close`. A producer can be used from several threads.
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
from penstock.client.sender import Headers, MessageSender
from penstock.client.transactions import Transactions, abort_after

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

    from penstock.client.consumer import Consumer

WAIT_S = 0.1
"""Longest single wait, so that Ctrl-C and other threads are handled in time."""

FLUSH_MARGIN_S = 10.0


class SendHandle:
    """The delivery of one message, returned by `Producer.send`."""

    __slots__ = ("_pending", "_sender")

    def __init__(self, sender: MessageSender, pending: PendingSend) -> None:
        self._sender = sender
        self._pending = pending

    @property
    def done(self) -> bool:
        return self._pending.done

    def result(self, timeout_s: float | None = None) -> Stored:
        """Wait for the delivery report; return the position of the message, or raise the delivery error."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._pending.done:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimedOut(f"no delivery report within {timeout_s} s; the message may still be stored")
            self._sender.serve(WAIT_S)
        return self._pending.stored


class Transaction:
    """An open transaction: `with producer.transaction() as transaction`. Its methods add consumer offsets to it."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def commit_progress(self, consumer: Consumer) -> None:
        """Commit the offsets of the messages that `consumer` has returned, as part of the transaction.

        The consumer must have delivery="exactly-once".
        """
        offsets = consumer.reader.handed_offsets()
        if offsets:
            self.commit_offsets(offsets, consumer.reader.consumer.consumer_group_metadata())

    def commit_offsets(self, offsets: list[TopicPartition], group_metadata: Any) -> None:
        """Commit `offsets` as part of the transaction; `group_metadata` is that of the consumer that read them."""
        self._transactions.add_offsets(offsets, group_metadata)


class Producer:
    def __init__(self, bootstrap: str | None = None, **options: Unpack[ProducerOptions]) -> None:
        """Connect to `bootstrap`: `host:port`, several separated by commas; PENSTOCK_BOOTSTRAP or
        localhost:9092 by default.
        """
        self._give_up_after_s = options.get("delivery_timeout_s", DELIVERY_TIMEOUT_S) + FLUSH_MARGIN_S
        self._sender = MessageSender(bootstrap, options)
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
        delay_s: float | None = None,
        deliver_at: datetime | int | None = None,
    ) -> SendHandle:
        """Queue a message; wait only while the queue is full.

        Raises NotDelivered if earlier messages failed; this message is not queued then. `delay_s` or `deliver_at` (a
        time, or epoch milliseconds) delays the delivery to consumers; the topic needs `delivery.delay=true`.
        """
        if self._closed:
            raise ClientError("the producer is closed")
        headers = self._sender.with_delay(topic, headers, delay_s, deliver_at)
        while (pending := self._sender.offer(topic, value, key, partition, headers, timestamp)) is None:
            self._sender.serve(WAIT_S)
        self._sender.serve(0)
        return SendHandle(self._sender, pending)

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: datetime | int | None = None,
        delay_s: float | None = None,
        deliver_at: datetime | int | None = None,
    ) -> Stored:
        """Send a message and wait until it is stored."""
        return self.send(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp=timestamp,
            delay_s=delay_s,
            deliver_at=deliver_at,
        ).result()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Send messages in a transaction: the end of the block commits it, an exception in the block aborts it.

        Raises TransactionAborted if the transaction could not be committed; the caller may send the messages again in a
        new transaction.
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
        """Wait until all queued messages are stored. Raises NotDelivered for failed messages, TimedOut after
        `timeout_s`.
        """
        deadline = time.monotonic() + (self._give_up_after_s if timeout_s is None else timeout_s)
        while left := self._sender.flush(WAIT_S):
            if time.monotonic() >= deadline:
                raise TimedOut(f"{left} messages are still waiting for a delivery report")
        self._sender.raise_failures()

    def close(self) -> None:
        """Flush and disconnect. Raises NotDelivered if messages were lost."""
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
            error.add_note(f"while closing the producer: {failure}")
