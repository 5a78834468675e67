"""A queue for asyncio programs: send, receive, settle; the same as `Queue`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from penstock.client.errors import ClientError, InvalidSetting
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
from penstock.config.retry_backoff import parse_retry_backoff
from penstock.internal_client.queue_contents import decode_content
from penstock.internal_client.queue_messages import ReceivedMessage as Delivered
from penstock.internal_client.queue_views import queue_filter

MAX_LOCK_S = 3_600.0
MAX_TIMEOUT_S = 3_600.0
MAX_DELAY_S = 365 * 86_400
MAX_PREFETCH = 1_000


class QueueEmpty(ClientError):
    """No message arrived within `wait_s`."""


class MessageFields:
    """The content of a received message."""

    def __init__(self, delivered: Delivered) -> None:
        record = delivered.record
        self.value: Any = decode_content(record.value, record.headers)
        """The value as the producer sent it: a JSON value, text or bytes."""
        self.key = record.key
        self.attempt = delivered.attempt
        """Number of deliveries of the message, including this one."""
        self.headers = dict(record.headers)
        self.partition = delivered.partition
        self.offset = record.offset
        self.timestamp_ms = record.timestamp
        assert delivered.place is not None, "the message was taken"
        self.place = delivered.place
        self.is_settled = False

    @property
    def receipt(self) -> str:
        """Receipt of this delivery, as text. Any gateway accepts it until the lock of the message expires."""
        return str(self.place)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r}, attempt={self.attempt})"


def check_seconds(name: str, seconds: float | None) -> float | None:
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_DELAY_S:
        raise InvalidSetting(f"{name}={seconds!r} is not a number of seconds between 0 and 365 days")
    return seconds


def check_workers(workers: int, prefetch: int | None) -> None:
    if workers < 1:
        raise InvalidSetting(f"workers={workers!r} is not at least 1")
    if prefetch is not None and not 0 <= prefetch <= MAX_PREFETCH:
        raise InvalidSetting(f"prefetch={prefetch!r} is not between 0 and {MAX_PREFETCH}")


def check_timeout(timeout_s: float) -> None:
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise InvalidSetting(f"timeout_s={timeout_s!r} is not above 0 and at most {MAX_TIMEOUT_S:g}")


def send_options(
    delay_s: float | None, ttl_s: float | None, priority: int | None, headers: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the options of a message in the form of `QueueSession.send`. Raises InvalidSetting for an invalid
    value.
    """
    check_seconds("delay_s", delay_s)
    check_seconds("ttl_s", ttl_s)
    if priority is not None and (type(priority) is not int or not 0 <= priority <= 9):
        raise InvalidSetting(f"priority={priority!r} is not a whole number from 0 to 9")
    return {
        "delay_ms": None if not delay_s else round(delay_s * 1000),
        "ttl_ms": None if ttl_s is None else max(1, round(ttl_s * 1000)),
        "priority": priority,
        "headers": headers,
    }


def queue_settings(
    lock_s: float | None,
    max_attempts: int | None,
    back_off: str | None,
    dead_letter: str | None,
    order: str | None,
    priorities: bool | None,
    priority_share: float | None,
) -> dict[str, Any]:
    """Return the settings of a new queue in the form of `QueueSession.create`. Raises InvalidSetting for an invalid
    value.
    """
    try:
        parsed = None if back_off is None else parse_retry_backoff(back_off)
    except ValueError as error:
        raise InvalidSetting(f"back_off={back_off[:80]!r}: {error}" if back_off else str(error)) from None
    if order not in (None, "key", "none"):
        raise InvalidSetting(f"order={order!r} is neither 'key' nor 'none'")
    if priority_share is not None and not 0 <= priority_share <= 0.5:
        raise InvalidSetting(f"priority_share={priority_share!r} is not between 0 and 0.5")
    return {
        "lock_ms": None if lock_s is None else max(1, round(lock_s * 1000)),
        "max_attempts": max_attempts,
        "back_off": parsed,
        "dead_letter": dead_letter,
        "order": order,
        "priorities": None if priorities is None else str(bool(priorities)).lower(),
        "priority_share": priority_share,
    }


class AsyncQueueMessage(MessageFields):
    """A received message. As an async context manager it is accepted at the end of the block, and released after an
    exception.
    """

    def __init__(self, delivered: Delivered, session: QueueSession) -> None:
        super().__init__(delivered)
        self._session = session

    async def accept(self) -> None:
        await self._settle(ACCEPT)

    async def release(self, delay_s: float | None = None) -> None:
        """Have the message delivered again after `delay_s`, or after the queue's back-off if `delay_s` is None."""
        await self._settle(RELEASE, check_seconds("delay_s", delay_s))

    async def reject(self, reason: str = "") -> None:
        """Settle a message that cannot be processed: it is not delivered again."""
        await self._settle(REJECT, reason=reason)

    async def extend(self, seconds: float) -> None:
        """Extend the lock of the message: it expires `seconds` from now."""
        await self._session.settle(self.place, EXTEND, check_seconds("seconds", seconds))

    async def reply(self, value: Any) -> bool:
        """Reply to a message that was sent with `request`. The message must still be accepted afterwards.

        Only the first reply is stored: returns False if an earlier delivery of the message has already stored one.
        """
        return await self._session.reply(self.headers, value)

    async def _settle(self, action: int, delay_s: float | None = None, reason: str = "") -> None:
        await self._session.settle(self.place, action, delay_s, reason)
        self.is_settled = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.is_settled:
            await (self.accept() if error is None else self.release())


class Receiving:
    """A receive that has begun: `await` returns the message; `async with` accepts or releases it at the end of the
    block.
    """

    __slots__ = ("_message", "_work")

    def __init__(self, work: Coroutine[Any, Any, AsyncQueueMessage]) -> None:
        self._work = work
        self._message: AsyncQueueMessage | None = None

    def __await__(self) -> Generator[Any, None, AsyncQueueMessage]:
        return self._work.__await__()

    async def __aenter__(self) -> AsyncQueueMessage:
        self._message = await self._work
        return self._message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._message is not None:
            await self._message.__aexit__(kind, error, trace)


class AsyncQueue:
    """A queue. `lock_s` replaces the queue's lock time; locks are extended up to `max_lock_s` during processing.

    `run` processes up to `workers` messages at the same time and receives up to `prefetch` further messages in advance.
    The default of `prefetch` is `workers`, or 0 for a queue with order by key or priorities. Locks of prefetched
    messages are extended too. Prefetched messages that the workers do not start within about half a second are returned
    to the queue.
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
        self._is_stopping = False
        self._session = QueueSession(name, InternalConnection(bootstrap, config or {}), lock_s, max_lock_s)

    @classmethod
    async def create(
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
            await queue._session.create(of, partitions, settings, queue_filter(filter, route), retain)
        except BaseException:
            await queue.close()
            raise
        return queue

    async def send(
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
        return await self._session.send(value, key, send_options(delay_s, ttl_s, priority, headers))

    async def request(
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
        return await self._session.request(value, key, timeout_s, headers)

    def receive(self, wait_s: float = 0) -> Receiving:
        """Receive a message with `await` or `async with`. Raises QueueEmpty if none arrives within `wait_s`."""
        return Receiving(self._receive(wait_s))

    async def _receive(self, wait_s: float) -> AsyncQueueMessage:
        found = await self.receive_many(1, wait_s)
        if not found:
            raise QueueEmpty(f"no message of {self.name} within {wait_s:g} s")
        return found[0]

    async def receive_many(self, max_messages: int = 100, wait_s: float = 0) -> list[AsyncQueueMessage]:
        """Receive up to `max_messages`. Waits up to `wait_s` for the first message."""
        found = await self._session.receive(max_messages, wait_s)
        return [AsyncQueueMessage(each, self._session) for each in found]

    async def accept(self, messages: Sequence[AsyncQueueMessage]) -> None:
        """Accept several messages with one request per leader. Raises ReceiptExpired if the lock of one of them has
        expired.
        """
        results = await self._session.settle_many([(each.place, ACCEPT) for each in messages])
        for message, error in zip(messages, results, strict=True):
            message.is_settled = error is None
        raise_first(self.name, results)

    async def __aiter__(self) -> AsyncIterator[AsyncQueueMessage]:
        """Receive messages until `stop`. A message that the loop body does not settle is accepted, or released if the
        loop ends with `break` or an exception.
        """
        while not self._is_stopping:
            for message in await self.receive_many(1, WAIT_S):
                try:
                    yield message
                except GeneratorExit:
                    if not message.is_settled:
                        await message.release(0)
                    raise
                if not message.is_settled:
                    await message.accept()

    # --- workers

    async def run(self, work: Callable[[AsyncQueueMessage], Awaitable[object]]) -> None:
        """Call a coroutine function for each message, for up to `workers` messages at the same time, until `stop`.

        A message is accepted when the coroutine returns, and released with the queue's back-off when it raises. At the
        end, received messages that were not started are returned to the queue.
        """
        ready: asyncio.Queue[Delivered | None] = asyncio.Queue()
        held = QueueWork(
            self._session, self._workers, ready, lambda call: asyncio.get_running_loop().call_soon(call)
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._workers):
                    tasks.create_task(self._work(held, ready, work))
                try:
                    await held.receive(self._prefetch, lambda: self._is_stopping)
                finally:
                    held.end()
        finally:
            await held.settled()

    async def _work(
        self,
        held: QueueWork,
        ready: asyncio.Queue[Delivered | None],
        work: Callable[[AsyncQueueMessage], Awaitable[object]],
    ) -> None:
        """Process messages from `ready` until it yields None. A message whose processing is cancelled is released."""
        while (delivered := await ready.get()) is not None:
            if self._is_stopping:
                held.give_back(delivered)
                continue
            message, failure = AsyncQueueMessage(delivered, self._session), None
            try:
                await work(message)
            except BaseException as error:
                failure = error
                if not isinstance(error, Exception):
                    raise
            finally:
                held.finish(delivered, failure, is_settled=message.is_settled)

    def stop(self) -> None:
        """End `run` and loops over the queue once the messages in work are processed."""
        self._is_stopping = True

    async def close(self) -> None:
        """Stop, return unsettled messages to the queue, and close all connections."""
        self.stop()
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        await self._session.close(has_failed=error is not None)
