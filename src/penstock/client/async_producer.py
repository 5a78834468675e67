"""The producer for asyncio: the methods of `Producer` as coroutines; nothing blocks the event loop.

confluent-kafka's own async producer buffers for up to a second and does not support headers, so this one is
built on the synchronous producer: queueing a message never blocks, and one thread collects delivery reports
in batches.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self, Unpack

from confluent_kafka import KafkaError, Message

from penstock.client.errors import ClientError, TimedOut
from penstock.client.pending import PendingSend, Stored
from penstock.client.producer import FLUSH_MARGIN_S
from penstock.client.producer_options import DELIVERY_TIMEOUT_S, ProducerOptions, check_producer_names
from penstock.client.sender import Headers, MessageSender
from penstock.client.transactions import abort_after

SERVE_S = 0.1
FULL_QUEUE_WAIT_S = 0.005


class AsyncSendHandle:
    """The delivery of one message; `await` it for the position of the stored message."""

    __slots__ = ("_pending",)

    def __init__(self, pending: PendingSend) -> None:
        self._pending = pending

    @property
    def done(self) -> bool:
        return self._pending.done

    def __await__(self) -> Generator[Any, None, Stored]:
        if not self._pending.done:
            done = asyncio.Event()
            self._pending.when_done(done.set)
            yield from done.wait().__await__()
        return self._pending.stored


class AsyncProducer:
    """A producer for one event loop; use it with `async with`."""

    def __init__(self, bootstrap: str | None = None, **options: Unpack[ProducerOptions]) -> None:
        check_producer_names(options)
        self._bootstrap = bootstrap
        self._options = options
        self._give_up_after_s = options.get("delivery_timeout_s", DELIVERY_TIMEOUT_S) + FLUSH_MARGIN_S
        self._reports: deque[tuple[PendingSend, KafkaError | None, Message]] = deque()
        self._settling = False
        self._stopping = threading.Event()
        self._sender: MessageSender | None = None

    async def start(self) -> None:
        """Connect; `async with` calls this."""
        self._loop = asyncio.get_running_loop()
        self._sender = await asyncio.to_thread(MessageSender, self._bootstrap, self._options, self._on_report)
        self._thread = threading.Thread(target=self._serve, name="penstock-producer", daemon=True)
        self._thread.start()

    async def send(
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
    ) -> AsyncSendHandle:
        """Queue a message; wait only while the queue is full. `await` the returned handle to wait until the message is
        stored.

        Raises NotDelivered if earlier messages failed; this message is not queued then. `delay_s` or `deliver_at` (a
        time, or epoch milliseconds) delays the delivery to consumers; the topic needs `delivery.delay=true`.
        """
        sender = self._running()
        if delay_s is not None or deliver_at is not None:
            headers = await asyncio.to_thread(sender.with_delay, topic, headers, delay_s, deliver_at)
        while (pending := sender.offer(topic, value, key, partition, headers, timestamp)) is None:
            await asyncio.sleep(FULL_QUEUE_WAIT_S)
        return AsyncSendHandle(pending)

    async def send_and_wait(
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
        return await (
            await self.send(
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp=timestamp,
                delay_s=delay_s,
                deliver_at=deliver_at,
            )
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Send messages in a transaction: the end of the block commits it, an exception in the block aborts it.

        Raises TransactionAborted if the transaction could not be committed; the caller may send the messages again in a
        new transaction.
        """
        sender = self._running()
        transactions = sender.begin()
        try:
            yield
            await asyncio.to_thread(transactions.commit)
        except BaseException as error:
            await asyncio.to_thread(abort_after, error, transactions)
            raise
        finally:
            self._settle()
            sender.forget_failures()

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all queued messages are stored. Raises NotDelivered for failed messages, TimedOut after
        `timeout_s`.
        """
        sender = self._running()
        timeout_s = self._give_up_after_s if timeout_s is None else timeout_s
        left = await asyncio.to_thread(sender.flush, timeout_s)
        self._settle()
        if left:
            raise TimedOut(f"{left} messages are still waiting for a delivery report")
        sender.raise_failures()

    async def close(self) -> None:
        """Flush and disconnect. Raises NotDelivered if messages were lost."""
        if self._sender is None or self._stopping.is_set():
            return
        try:
            await self.flush()
        finally:
            self._stopping.set()
            await asyncio.to_thread(self._sender.close)
            await asyncio.to_thread(self._thread.join)
            self._settle()
        self._sender.raise_failures()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ClientError as failure:
            if error is None:
                raise
            error.add_note(f"while closing the producer: {failure}")

    def _running(self) -> MessageSender:
        if self._sender is None or self._stopping.is_set():
            raise ClientError("the producer is not open; use it with `async with`")
        return self._sender

    def _serve(self) -> None:
        assert self._sender is not None
        while not self._stopping.is_set():
            with suppress(ClientError):  # fatal errors are raised by the next call of the producer
                self._sender.serve(SERVE_S)

    def _on_report(self, pending: PendingSend, error: KafkaError | None, message: Message) -> None:
        """Queue a delivery report for the event loop. Runs in any thread; the loop is woken once for all reports that
        arrive before it runs.
        """
        self._reports.append((pending, error, message))
        if not self._settling:
            self._settling = True
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        # The flag is cleared before the reports are read, so that a report that arrives during the read wakes the
        # loop again.
        self._settling = False
        assert self._sender is not None
        while self._reports:
            self._sender.settle(*self._reports.popleft())
