"""Messages that `run` has received for its workers: handed out, counted until they are settled, settled in groups.

Up to `prefetch` messages wait in memory for the next free worker, and at most as many as the workers have finished
within half a second: long work has none. Others are returned, without an attempt. Workers are threads or tasks; methods
run on the loop of the session unless they say otherwise.
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
"""Time of one wait for messages in loops, which look for a stop in between."""
_WINDOW_S: Final = 0.5
logger = logging.getLogger("penstock.client")

Ready = SimpleQueue[ReceivedMessage | None] | asyncio.Queue[ReceivedMessage | None]
"""Messages for workers; None ends a worker."""


class _Finished(NamedTuple):
    receipt: Receipt | None
    action: int | None
    """Settlement that is left to do; None if the message is settled."""


class QueueWork:
    def __init__(
        self, session: QueueSession, workers: int, ready: Ready, post: Callable[[Callable[[], None]], object]
    ) -> None:
        """`post` calls a function on the loop of the session, from any thread."""
        self._session = session
        self._workers = workers
        self._ready = ready
        self._post = post
        self._finished: deque[_Finished] = deque()
        self._is_posted = False
        """Whether `_settle_finished` is going to be called."""
        self._unfinished = 0
        self._unsettled = 0
        self._prefetch = 0
        self._paces = [0, 0]
        """Number of messages that workers have finished in this time window, and in the one before."""
        self._changed = asyncio.Event()
        self._settling: set[asyncio.Task[None]] = set()
        self.is_ended = False
        """Whether messages are returned that are not started."""

    async def receive(self, prefetch: int | None, is_stopping: Callable[[], bool]) -> None:
        """Receive messages for the workers until the queue stops. `prefetch` None stands for the default."""
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
        """Wait until the messages of all workers are settled; the workers have ended."""
        self._settle_finished()
        while self._settling:
            await asyncio.wait(self._settling)

    def end(self) -> None:
        """Return the messages that are not started, and end the workers when they are free. Any thread."""
        self.is_ended = True
        self._return(self._ready.qsize())
        for _ in range(self._workers):
            self._ready.put_nowait(None)

    def finish(self, message: ReceivedMessage, error: BaseException | None, *, is_settled: bool) -> None:
        """Take a message back from a worker, with the error of its work. Any thread."""
        if isinstance(error, ReceiptExpired):
            self._warn_expired()
        elif error is not None and not isinstance(error, asyncio.CancelledError):
            logger.error("queue %s: a message was released", self._session.name, exc_info=error)
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
        """Number of messages to ask for; messages that are being settled are limited too."""
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
        left.sort(
            key=lambda each: (each[0].partition, each[0].token, each[0].offset)
        )  # neighbours in one range
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
