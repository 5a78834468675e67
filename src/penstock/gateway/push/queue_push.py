"""The queue streams of a gateway: opens them, counts them, and waits for their end when the gateway stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from starlette.types import Receive, Send

from penstock.errors import BrokerError, PenstockError
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.push.handshake import Handshake
from penstock.gateway.push.queue_feed import QueueFeed, QueueFeeds
from penstock.gateway.push.queue_socket import QueueSocket
from penstock.gateway.push.socket_endpoints import QUEUE_CLIENT_MESSAGE
from penstock.gateway.push.turns import Turns
from penstock.internal_client.queue_messages import Settlement
from penstock.internal_client.queue_settler import QueueSettler
from penstock.net.acting import Actor, acting_for, own_context
from penstock.wire.queue_receive import GROUP_LOCK

STOP_SECONDS = 2.0
RELEASE_SECONDS = 10.0
"""Time in seconds for returning the messages of an ended stream. After it, they return when their locks expire."""
_LOOK_SECONDS = 0.02


class QueuePush:
    def __init__(self, context: EndpointContext) -> None:
        self._backend = context.backend
        self._feeds = QueueFeeds(self._backend.queues, self._backend.queue_messages)
        self._turns = Turns()
        self._open: set[QueueStream] = set()
        self._releasing: set[asyncio.Task[None]] = set()
        self._settlers: WeakValueDictionary[tuple[str, Actor | None], QueueSettler] = WeakValueDictionary()
        """Settlers in use by sockets, by queue and user."""

    @property
    def open_streams(self) -> int:
        return len(self._open)

    @property
    def messages_sent(self) -> int:
        return self._feeds.given

    async def close(self) -> None:
        """Wait, at most `STOP_SECONDS`, until ending streams have returned their messages to the queues."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_SECONDS
        while (self._open or self._releasing) and loop.time() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)

    async def open(self, handshake: Handshake) -> QueueStream:
        queue = handshake.parameters["queue"]
        topic = (await self._backend.queues.get_known(queue)).topic
        await handshake.require("READ", "TOPIC", topic)
        lock_s = handshake.parameters.get("lock_s")
        lock_ms = GROUP_LOCK if lock_s is None else max(1, round(lock_s * 1000))
        return QueueStream(self, queue, lock_ms, handshake.request_id)

    async def serve(self, stream: QueueStream, receive: Receive, send: Send) -> None:
        self._open.add(stream)
        feed = self._feeds.open(stream.queue, stream.lock_ms, stream)

        settle = partial(self._settle, self._settler(stream.queue))
        socket = QueueSocket(feed, settle, self._turns, QUEUE_CLIENT_MESSAGE, stream.request_id)
        try:
            await socket.serve(receive, send)
        finally:
            # Messages are returned in another task, so that the connection ends at once even if no broker responds.
            releasing = asyncio.get_running_loop().create_task(
                self._release(feed, socket.held), context=own_context()
            )
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)
            self._feeds.close(stream.queue, stream.lock_ms, stream)
            self._open.discard(stream)

    def _settler(self, queue: str) -> QueueSettler:
        """Return the settler for a queue and the user of this socket. It sends settlements of many sockets in one
        request.
        """
        key = queue, acting_for.get()
        settler = self._settlers.get(key)
        if settler is None:
            settler = self._settlers[key] = QueueSettler(partial(self._settle_all, queue))
        return settler

    async def _settle_all(
        self, queue: str, settlements: Sequence[Settlement]
    ) -> Sequence[BrokerError | None]:
        topic = (await self._backend.queues.get_known(queue)).topic
        return await self._backend.queue_messages.settle(queue, topic, settlements)

    async def _settle(
        self, settler: QueueSettler, settlements: Sequence[Settlement]
    ) -> Sequence[BrokerError | None]:
        outcomes = await asyncio.gather(*map(settler.settle, settlements), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, BrokerError):
                raise outcome
        return [each if isinstance(each, BrokerError) else None for each in outcomes]

    async def _release(self, feed: QueueFeed, receipts: Sequence[str]) -> None:
        with suppress(PenstockError, OSError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await feed.release(receipts)


class QueueStream:
    """One stream of a queue: its parameters, from the handshake to its end."""

    __slots__ = ("_push", "lock_ms", "queue", "request_id")

    def __init__(self, push: QueuePush, queue: str, lock_ms: int, request_id: str) -> None:
        self._push = push
        self.queue = queue
        self.lock_ms = lock_ms
        self.request_id = request_id

    async def serve(self, receive: Receive, send: Send) -> None:
        await self._push.serve(self, receive, send)
