"""A queue: send messages, receive them one by one or with workers, and settle them.

The connections run in an event loop in a thread of this queue; every method may be called from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.client.async_queue import (
    MAX_LOCK_S,
    MessageFields,
    QueueEmpty,
    check_seconds,
    check_timeout,
    check_workers,
    queue_settings,
    send_options,
)
from penstock.client.errors import ClientError
from penstock.client.internal_connection import InternalConnection
from penstock.client.queue_session import (
    ACCEPT,
    EXTEND,
    REJECT,
    RELEASE,
    QueueSession,
    raise_first,
)
from penstock.client.queue_work import WAIT_S, QueueWork
from penstock.internal_client.queue_messages import ReceivedMessage as Delivered
from penstock.internal_client.queue_views import queue_filter

__all__ = ("Queue", "QueueEmpty", "QueueMessage")
T = TypeVar("T")


class QueueMessage(MessageFields):
    """A received message. As a context manager it is accepted at the end of the block, and released after an
    exception.
    """

    def __init__(self, delivered: Delivered, queue: Queue) -> None:
        super().__init__(delivered)
        self._queue = queue

    def accept(self) -> None:
        self._settle(ACCEPT)

    def release(self, delay_s: float | None = None) -> None:
        """Have the message delivered again after `delay_s`, or after the queue's back-off if `delay_s` is None."""
        self._settle(RELEASE, check_seconds("delay_s", delay_s))

    def reject(self, reason: str = "") -> None:
        """Settle a message that cannot be processed: it is not delivered again."""
        self._settle(REJECT, reason=reason)

    def extend(self, seconds: float) -> None:
        """Extend the lock of the message: it expires `seconds` from now."""
        self._queue.call(self._queue.session.settle(self.place, EXTEND, check_seconds("seconds", seconds)))

    def reply(self, value: Any) -> bool:
        """Reply to a message that was sent with `request`. The message must still be accepted afterwards.

        Only the first reply is stored: returns False if an earlier delivery of the message has already stored one.
        """
        return self._queue.call(self._queue.session.reply(self.headers, value))

    def _settle(self, action: int, delay_s: float | None = None, reason: str = "") -> None:
        self._queue.call(self._queue.session.settle(self.place, action, delay_s, reason))
        self.is_settled = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.is_settled:
            self.accept() if error is None else self.release()


class Queue:
    """A queue. `lock_s` replaces the queue's lock time; locks are extended up to `max_lock_s` during processing.

    `run` processes messages in `workers` threads and receives up to `prefetch` further messages in advance. The default
    of `prefetch` is `workers`, or 0 for a queue with order by key or priorities. Locks of prefetched messages are
    extended too. Prefetched messages that the workers do not start within about half a second are returned to the
    queue.
    """

    def __init__(
        self,
        name: str,
        *,
        bootstrap: str | None = None,
        workers: int = 1,
        prefetch: int | None = None,
        lock_s: float | None = None,
        max_lock_s: float = MAX_LOCK_S,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        check_workers(workers, prefetch)
        self.name = name
        self._workers = workers
        self._prefetch = prefetch
        self.session = QueueSession(name, InternalConnection(bootstrap, config or {}), lock_s, max_lock_s)
        self._stopping = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"queue {name}", daemon=True)
        self._thread.start()
        self._is_closed = False
        self._closing = threading.Lock()

    @classmethod
    def create(
        cls,
        name: str,
        *,
        of: str | None = None,
        filter: str | None = None,
        route: str | None = None,
        partitions: int | None = None,
        lock_s: float | None = None,
        max_attempts: int | None = None,
        back_off: str | None = None,
        dead_letter: str | None = None,
        order: str | None = None,
        priorities: bool | None = None,
        priority_share: float | None = None,
        retain: str = "",
        max_length: int | None = None,
        max_length_policy: str | None = None,
        bootstrap: str | None = None,
        workers: int = 1,
        config: Mapping[str, Any] | None = None,
    ) -> Self:
        """Create a queue and open it. It gets a topic of its own, or reads the existing topic `of`.

        `filter` and `route` select messages of `of`: an expression like the filter of a view, and a pattern for the
        header `penstock-route`. `retain` is `acknowledged`, or a retention time such as `2w`. Beyond `max_length`,
        `max_length_policy` decides: `refuse` new messages, or `dead-letter` the oldest ones.
        """
        order_by = order, priorities, priority_share
        settings = queue_settings(lock_s, max_attempts, back_off, dead_letter, *order_by) | {
            "max_length": max_length,
            "max_length_policy": max_length_policy,
        }
        queue = cls(name, bootstrap=bootstrap, workers=workers, config=config)
        try:
            queue.call(queue.session.create(of, partitions, settings, queue_filter(filter, route), retain))
        except BaseException:
            queue.close()
            raise
        return queue

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the queue's loop and wait for it."""
        with self._closing:
            if self._is_closed:
                work.close()
                raise ClientError(f"queue {self.name} is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise ClientError(f"queue {self.name} was closed") from None
        except BaseException:
            future.cancel()
            raise

    def send(
        self,
        value: Any,
        *,
        key: str | bytes | None = None,
        delay_s: float | None = None,
        ttl_s: float | None = None,
        priority: int | None = None,
        headers: dict[str, Any] | None = None,
    ) -> tuple[int, int]:
        """Send a message; returns its partition and offset once it is stored durably."""
        return self.call(self.session.send(value, key, send_options(delay_s, ttl_s, priority, headers)))

    def request(
        self,
        value: Any,
        timeout_s: float = 5,
        *,
        key: str | bytes | None = None,
        headers: dict[str, Any] | None = None,
    ) -> Any:
        """Send a message and return the reply of its consumer. Raises NoReply if no reply arrives within `timeout_s`.

        The message expires after `timeout_s`. Replies are stored in the topic `NAME-replies`, which is created if it
        does not exist.
        """
        check_timeout(timeout_s)
        return self.call(self.session.request(value, key, timeout_s, headers))

    def receive(self, wait_s: float = 0) -> QueueMessage:
        """Receive a message. Raises QueueEmpty if none arrives within `wait_s`."""
        found = self.receive_many(1, wait_s)
        if not found:
            raise QueueEmpty(f"no message of {self.name} within {wait_s:g} s")
        return found[0]

    def receive_many(self, max_messages: int = 100, wait_s: float = 0) -> list[QueueMessage]:
        """Receive up to `max_messages`. Waits up to `wait_s` for the first message."""
        return [QueueMessage(each, self) for each in self.call(self.session.receive(max_messages, wait_s))]

    def accept(self, messages: list[QueueMessage]) -> None:
        """Accept several messages with one request per leader. Raises ReceiptExpired if the lock of one of them has
        expired.
        """
        results = self.call(self.session.settle_many([(each.place, ACCEPT) for each in messages]))
        for message, error in zip(messages, results, strict=True):
            message.is_settled = error is None
        raise_first(self.name, results)

    def __iter__(self) -> Iterator[QueueMessage]:
        """Receive messages until `stop`. A message that the loop body does not settle is accepted, or released if the
        loop ends with `break` or an exception.
        """
        while not self._stopping.is_set():
            for message in self.receive_many(1, WAIT_S):
                try:
                    yield message
                except GeneratorExit:
                    if not message.is_settled:
                        message.release(0)
                    raise
                if not message.is_settled:
                    message.accept()

    # --- workers

    def run(self, work: Callable[[QueueMessage], object]) -> None:
        """Call a function for each message in the queue's worker threads until `stop`.

        A message is accepted when the function returns, and released with the queue's back-off when it raises. At the
        end, received messages that were not started are returned to the queue.
        """
        ready: SimpleQueue[Delivered | None] = SimpleQueue()
        held = QueueWork(self.session, self._workers, ready, self._post)
        with ThreadPoolExecutor(self._workers, f"queue {self.name}") as pool:
            for _ in range(self._workers):
                pool.submit(self._work, held, ready, work)
            try:
                self.call(held.receive(self._prefetch, self._stopping.is_set))
            finally:
                held.end()
        self.call(held.settled())

    def _work(
        self,
        held: QueueWork,
        ready: SimpleQueue[Delivered | None],
        work: Callable[[QueueMessage], object],
    ) -> None:
        """Process messages from `ready` until it yields None."""
        while (delivered := ready.get()) is not None:
            if held.is_ended or self._stopping.is_set():
                held.give_back(delivered)
                continue
            message, failure = QueueMessage(delivered, self), None
            try:
                work(message)
            except BaseException as error:  # noqa: BLE001 - as with any function in a pool's thread
                failure = error
            held.finish(delivered, failure, is_settled=message.is_settled)

    def _post(self, call: Callable[[], None]) -> None:
        """Call a function on the queue's event loop. Does nothing once the queue is closed: `close` returns all
        messages itself.
        """
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """End `run` and loops over the queue once the messages in work are processed."""
        self._stopping.set()

    def close(self) -> None:
        """Stop, return unsettled messages to the queue, and close all connections.

        Calls that wait in other threads raise ClientError.
        """
        self._close(has_failed=False)

    def _close(self, *, has_failed: bool) -> None:
        self.stop()
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._end(has_failed), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self, has_failed: bool) -> None:
        await self.session.close(has_failed=has_failed)
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(has_failed=error is not None)
