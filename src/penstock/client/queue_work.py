"""Messages received by `Queue.run`: distribution to the workers, and settlement of finished messages in batches.

Up to `prefetch` messages wait in memory for the next free worker, but not more than the workers have finished in half a
second, so long-running work prefetches nothing. Messages above this limit are returned to the queue, which does not
count as an attempt. Workers are threads or tasks. Methods run on the event loop of the session unless their
documentation says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from penstock.client.errors import ClientError
from penstock.client.queue_session import ACCEPT, RELEASE, QueueSession, ReceiptExpired
from penstock.errors import ErrorCode
from penstock.internal_client.queue_messages import ReceivedMessage
from penstock.internal_client.receipts import Receipt
from penstock.wire.queue_settle import RETURN

WAIT_S: Final = 1.0
"""Longest single wait for messages, in seconds; loops check for a stop after each wait."""
_WINDOW_S: Final = 0.5
logger = logging.getLogger("penstock.client")

Ready = SimpleQueue[ReceivedMessage | None] | asyncio.Queue[ReceivedMessage | None]
"""Messages for workers; None ends a worker."""


class _Finished(NamedTuple):
    receipt: Receipt | None
    action: int | None
    """Settlement to send; None if the worker has settled the message already."""


class QueueWork:
    def __init__(
        self, session: QueueSession, workers: int, ready: Ready, post: Callable[[Callable[[], None]], object]
    ) -> None:
        """`post` calls a function on the event loop of the session; it must be thread-safe if workers are threads."""
        self._session = session
        self._workers = workers
        self._ready = ready
        self._post = post
        self._finished: deque[_Finished] = deque()
        self._is_posted = False
        """True if a call of `_settle_finished` is scheduled."""
        self._unfinished = 0
        self._unsettled = 0
        self._prefetch = 0
        self._paces = [0, 0]
        """Number of messages that workers have finished in the current time window, and in the one before it."""
        self._changed = asyncio.Event()
        self._settling: set[asyncio.Task[None]] = set()
        self.is_ended = False
        """True after `end`: workers return the remaining messages to the queue."""

    async def receive(self, prefetch: int | None, is_stopping: Callable[[], bool]) -> None:
        """Receive messages for the workers until `is_stopping()` is True. A `prefetch` of None stands for the session's
        default.
        """
        self._prefetch = await self._session.default_prefetch(self._workers) if prefetch is None else prefetch
        pace = asyncio.get_running_loop().create_task(self._keep_pace())
        try:
            while not is_stopping():
                wanted = self._wanted()
                if wanted <= 0:
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                found = await self._session.receive(wanted, WAIT_S)
                self._unfinished += len(found)
                self._unsettled += len(found)
                for each in found:
                    self._ready.put_nowait(each)
        finally:
            pace.cancel()

    async def settled(self) -> None:
        """Wait until all finished messages are settled. Called after the workers have ended."""
        self._settle_finished()
        while self._settling:
            await asyncio.wait(self._settling)

    def end(self) -> None:
        """Return the messages that no worker has started, and end each worker after its current message. Any thread."""
        self.is_ended = True
        self._return(self._ready.qsize())
        for _ in range(self._workers):
            self._ready.put_nowait(None)

    def finish(self, message: ReceivedMessage, error: BaseException | None, *, is_settled: bool) -> None:
        """Schedule the settlement of a finished message: accept it, or release it if the work raised `error`. Any
        thread.
        """
        if isinstance(error, ReceiptExpired):
            self._warn_expired()
        elif error is not None and not isinstance(error, asyncio.CancelledError):
            logger.error(
                "queue %s: processing failed, the message was released", self._session.name, exc_info=error
            )
        left = ACCEPT if error is None else RELEASE
        self._finish(_Finished(message.place, None if is_settled else left))

    def give_back(self, message: ReceivedMessage) -> None:
        """Return a message that was not started. Any thread."""
        self._finish(_Finished(message.place, RETURN))

    def _finish(self, finished: _Finished) -> None:
        self._finished.append(finished)
        if not self._is_posted:
            self._is_posted = True
            self._post(self._settle_finished)

    def _warn_expired(self) -> None:
        logger.warning("queue %s: the lock of a message ended before it was settled", self._session.name)

    # --- receiving

    def _wanted(self) -> int:
        """Number of messages to request. Bounded by the unfinished messages, and also by those whose settlement is in
        progress.
        """
        ahead = self._ahead()
        wanted = min(self._workers + ahead - self._unfinished, 2 * (self._workers + ahead) - self._unsettled)
        return wanted if wanted > ahead // 2 else 0

    def _ahead(self) -> int:
        return min(self._prefetch, max(self._paces))

    async def _keep_pace(self) -> None:
        while True:
            await asyncio.sleep(_WINDOW_S)
            self._paces = [0, self._paces[0]]
            self._return(self._ready.qsize() - self._ahead())

    def _return(self, count: int) -> None:
        for _ in range(count):
            with suppress(Empty, asyncio.QueueEmpty):
                message = self._ready.get_nowait()
                if message is not None:
                    self.give_back(message)

    # --- settling

    def _settle_finished(self) -> None:
        self._is_posted = False
        finished = [self._finished.popleft() for _ in range(len(self._finished))]
        self._unfinished -= len(finished)
        self._paces[0] += sum(each.action != RETURN for each in finished)
        left = [
            (receipt, action) for receipt, action in finished if receipt is not None and action is not None
        ]
        self._unsettled -= len(finished) - len(left)
        if left:
            task = asyncio.get_running_loop().create_task(self._settle(left))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
        self._changed.set()

    async def _settle(self, left: list[tuple[Receipt, int]]) -> None:
        # Messages of one range become neighbours.
        left.sort(key=lambda each: (each[0].partition, each[0].token, each[0].offset))
        try:
            results = await self._session.settle_many(left)
        except (ClientError, OSError) as error:
            logger.error("queue %s: %d messages were not settled: %s", self._session.name, len(left), error)
        else:
            for refusal in results:
                if refusal is None:
                    continue
                if refusal.code is ErrorCode.invalid_record_state:
                    self._warn_expired()
                else:
                    logger.error("queue %s: a message was not settled: %s", self._session.name, refusal)
        finally:
            self._unsettled -= len(left)
            self._changed.set()
