"""A queue over a WebSocket: the gateway sends messages, and the client settles them by receipt on the same socket.

    client   {"credit": 10}                       credit for 10 more messages; settling a message returns its credit
             {"settlements": [{"receipt": ..., "action": ...}]}    as in POST /v1/queues/{queue}/settlements
    server   {"receipt": ..., "value": ...}       a message, as POST /v1/queues/{queue}/receive returns it
             {"results": [...]}                   the results of settlements, in order
             {"error": {...}}                     a problem document; the connection is closed after it

A receipt of a message that was not sent over this socket is refused. Messages that are not settled when the connection
ends return to the queue at once. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.types import Receive, Send

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.schema import Schema
from penstock.gateway.push.held_messages import HeldMessages
from penstock.gateway.push.queue_feed import QueueFeed
from penstock.gateway.push.socket_messages import close_socket, read_message, send_json
from penstock.gateway.push.turns import Turns
from penstock.gateway.queue_message_endpoints import read_settlement, show_received, show_result
from penstock.internal_client.queue_messages import ReceivedMessage, Settlement

MAX_UNSENT_BYTES: Final = 64 * 1024
"""Number of bytes waiting to be sent over the socket from which on the stream takes no further message."""
MAX_PENDING: Final = 1_000
"""Number of the client's messages waiting to be settled from which on no further message of the client is read."""

Settle = Callable[[Sequence[Settlement]], Awaitable[Sequence[BrokerError | None]]]


class QueueSocket:
    """An accepted WebSocket of a queue. It is a `Taker` of the queue's feed."""

    def __init__(
        self, feed: QueueFeed, settle: Settle, turns: Turns, schema: Schema, request_id: str
    ) -> None:
        """Create the socket. `settle` settles messages of the queue on behalf of the client."""
        self._feed = feed
        self._settle = settle
        self._turns = turns
        self._schema = schema
        self._request_id = request_id
        self._held = HeldMessages()
        self._unsent: deque[ReceivedMessage] = deque()
        self._unsent_bytes = 0
        self._has_unsent = asyncio.Event()
        self._pending: deque[dict[str, Any]] = deque()
        self._has_pending = asyncio.Event()
        self._has_space = asyncio.Event()
        self._failure: Exception | None = None

    # --- Taker

    @property
    def room(self) -> int:
        return self._held.room if self._unsent_bytes < MAX_UNSENT_BYTES else 0

    def give(self, message: ReceivedMessage) -> None:
        self._held.add(message.receipt)
        self._unsent.append(message)
        self._unsent_bytes += len(message.record.value or b"")
        self._has_unsent.set()

    def fail(self, error: Exception) -> None:
        self._failure = error
        self._has_unsent.set()

    # --- the connection

    async def serve(self, receive: Receive, send: Send) -> None:
        """Serve until either side ends the connection. The caller then has to return the held messages to the queue."""
        loop = asyncio.get_running_loop()
        works = self._send_messages(send), self._settle_pending(send), self._listen(receive)
        tasks = [loop.create_task(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await close_socket(send, done.pop(), self._request_id)
        finally:
            self._feed.leave(self)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def held(self) -> Sequence[str]:
        """Receipts of the messages that the stream holds."""
        return self._held.receipts

    async def _listen(self, receive: Receive) -> None:
        """Read messages until the client disconnects; raises Problem for an invalid message."""
        while (message := await receive())["type"] != "websocket.disconnect":
            asked = read_message(message, self._schema)
            if "credit" in asked:
                self._held.grant(asked["credit"])
                self._wait_for_messages()
            if "settlements" in asked:
                self._pending.append(asked)
                self._has_pending.set()
            while len(self._pending) >= MAX_PENDING:
                self._has_space.clear()
                await self._has_space.wait()

    def _wait_for_messages(self) -> None:
        if self.room > 0:
            self._feed.wait(self)

    async def _send_messages(self, send: Send) -> None:
        while True:
            await self._has_unsent.wait()
            await self._turns.mine()
            if self._failure is not None:
                raise self._failure
            if not self._unsent:
                self._has_unsent.clear()
                continue
            message = self._unsent.popleft()
            await send_json(send, show_received(message))
            self._unsent_bytes -= len(message.record.value or b"")
            self._wait_for_messages()

    # --- settling

    async def _settle_pending(self, send: Send) -> None:
        """Settle messages in the order of the client's requests. All waiting settlements are sent to the brokers
        together.
        """
        while True:
            await self._has_pending.wait()
            asked, self._pending = self._pending, deque()
            self._has_pending.clear()
            self._has_space.set()
            places = [each for message in asked for each in message["settlements"]]
            errors = await self._results(places)
            start = 0
            for message in asked:
                end = start + len(message["settlements"])
                results = [
                    show_result(each["receipt"], error)
                    for each, error in zip(places[start:end], errors[start:end], strict=True)
                ]
                start = end
                await send_json(send, {"results": results})
            self._wait_for_messages()

    async def _results(self, asked: Sequence[dict[str, Any]]) -> list[BrokerError | Problem | None]:
        errors: list[BrokerError | Problem | None] = [None] * len(asked)
        chosen: list[tuple[int, Settlement]] = []
        for place, each in enumerate(asked):
            if self._held.holds(each["receipt"]):
                chosen.append((place, read_settlement(each)))
            else:
                errors[place] = not_of_this_socket()
        if not chosen:
            return errors
        results = await self._settle([each for _, each in chosen])
        for (place, _), result in zip(chosen, results, strict=True):
            errors[place] = result
            if asked[place]["action"] != "extend" and is_final(result):
                self._held.remove([asked[place]["receipt"]])
        return errors


def is_final(result: BrokerError | None) -> bool:
    """True if the message no longer belongs to this socket: it is settled, or its lock has expired."""
    return result is None or result.code is ErrorCode.invalid_record_state


def not_of_this_socket() -> BrokerError:
    return BrokerError(
        ErrorCode.invalid_record_state,
        "this socket holds no message with this receipt: it was settled before, or received elsewhere; settle it where "
        "it was received, or with POST /v1/queues/{queue}/settlements",
    )
