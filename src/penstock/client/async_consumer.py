"""The consumer for asyncio: iterate over it with `async for`. Blocking calls run in a thread of its own.

That thread fetches messages in batches, and the event loop returns them to the caller. A task that is cancelled during
a wait loses no message, and the threads synchronise once per batch instead of once per message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.consumer import WAIT_S, Consumer
from penstock.client.consumer_options import ConsumerOptions
from penstock.client.errors import ClientError
from penstock.client.in_thread import in_thread
from penstock.client.message import Message
from penstock.client.option_names import check_names


class AsyncConsumer:
    """A consumer for one task; use it with `async with`. `on_assigned` and `on_revoked` are called in the consumer's
    thread, not in the event loop.
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        check_names(options, ConsumerOptions.__annotations__)
        self._topics = topics
        self._options = options
        self._idle_timeout_s = options.get("idle_timeout_s")
        self._thread = ThreadPoolExecutor(1, "penstock-consumer")
        self._consumer: Consumer | None = None
        self._filling: asyncio.Future[None] | None = None
        self._anew = False

    commit = in_thread(Consumer.commit)
    assignment = in_thread(Consumer.assignment)
    seek = in_thread(Consumer.seek)
    seek_to_start = in_thread(Consumer.seek_to_start)
    seek_to_end = in_thread(Consumer.seek_to_end)
    seek_to_time = in_thread(Consumer.seek_to_time)
    pause = in_thread(Consumer.pause)
    resume = in_thread(Consumer.resume)
    position = in_thread(Consumer.position)
    committed = in_thread(Consumer.committed)
    retry = in_thread(Consumer.retry)

    @property
    def subject(self) -> Consumer:
        if self._consumer is None:
            raise ClientError("the consumer is not open; use it with `async with`")
        return self._consumer

    async def run_in_thread(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(call, *args, **kwargs))

    def __aiter__(self) -> Self:
        """Start a new iteration. With at-least-once or exactly-once delivery, it begins with the messages that the
        previous loop did not finish.
        """
        self._anew = True
        return self

    async def __anext__(self) -> Message:
        message = await self.poll(self._idle_timeout_s)
        if message is None:
            raise StopAsyncIteration
        return message

    async def poll(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message, or None if none arrived within `timeout_s`. Messages returned by earlier calls count
        as finished.
        """
        found = await self.batch(1, timeout_s)
        return found[0] if found else None

    async def batch(self, max_messages: int, timeout_s: float | None = None) -> list[Message]:
        """Return at least one message, and up to `max_messages` that are already fetched; an empty list after
        `timeout_s`. Messages returned by earlier calls count as finished.
        """
        reader = self.subject.reader
        await self._filled()
        if self._anew:
            self._anew = False
            reader.start_over()
        reader.finish()
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            left_s = WAIT_S if deadline is None else deadline - loop.time()
            if not reader.ready:
                wait_s = max(0.0, min(WAIT_S, left_s))
                self._filling = loop.run_in_executor(self._thread, reader.fill, wait_s)
                await self._filled()
            if reader.ready or left_s <= 0:
                found = reader.hand_over(max_messages)
                if found or left_s <= 0:
                    return found

    async def start(self) -> None:
        """Connect; `async with` calls this."""
        self._consumer = await self.run_in_thread(partial(Consumer, *self._topics, **self._options))

    async def close(self) -> None:
        """Leave the group. With at-least-once delivery, the messages returned by the last call count as finished only
        if `commit` was called.
        """
        if self._consumer is not None:
            await self.run_in_thread(self._consumer.close)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._consumer is not None:
            await self.run_in_thread(self._consumer.__exit__, kind, error, trace)
        self._thread.shutdown(wait=False)

    async def _filled(self) -> None:
        """Wait until the current call of `reader.fill` returns. The call continues in its thread when the task that
        started it is cancelled; the next task then waits for it.
        """
        filling = self._filling
        if filling is not None:
            try:
                await asyncio.shield(filling)
            finally:
                if filling.done():
                    self._filling = None
