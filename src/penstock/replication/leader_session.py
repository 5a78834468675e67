"""Fetches on one connection to a leader: an answer is applied, and the next request sent, in the turn it comes in.

A request waits at the leader until something comes; a second one, when this side has something new to say first, ends
that wait. No task stands between: a producer with acks=all waits for exactly this. Loop thread only.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from penstock.errors import BrokerError, ErrorCode
from penstock.net.broker_connection import BrokerConnection
from penstock.wire.fetch import FetchRequest
from penstock.wire.fetch_client import FetchResponse, decode_fetch_response, encode_fetch_request

FETCH_VERSION = 17
_MAX_IN_FLIGHT = 2


class Follower(Protocol):
    """Who is asked what to say, and told what comes."""

    def __len__(self) -> int:
        """How many partitions are followed: with none the session ends."""
        ...

    @property
    def has_news(self) -> bool:
        """Whether there is something to say to the leader."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether the leader may have something to say: not while all that it sent is being fsynced."""
        ...

    def request(self, session_id: int, session_epoch: int) -> FetchRequest: ...

    def take(self, response: FetchResponse, session_epoch: int) -> None:
        """The answer to the request of that epoch."""
        ...


class LeaderSession:
    def __init__(self, client: BrokerConnection, follower: Follower) -> None:
        self._client = client
        self._follower = follower
        self._id = 0
        """Known from the first answer on; no second request is sent before."""
        self._epoch = 0
        self._in_flight = 0
        self._answered = 0
        self._is_due = False
        """Whether it will be looked at in this turn of the loop: then news need no call of their own."""
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, silence_seconds: float) -> None:
        """Until there is nothing left to follow; what goes wrong is raised, and a leader that says nothing too."""
        self._ask()
        while not self._ended.done():
            answered, has_asked = self._answered, self._in_flight > 0
            await asyncio.wait([self._ended], timeout=silence_seconds)
            if has_asked and self._answered == answered and not self._ended.done():
                raise TimeoutError("the leader does not answer")
        self._ended.result()

    def on_news(self) -> None:
        """The follower has something to say; what comes of this turn is said together."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        try:
            self._ask()
        except Exception as error:  # noqa: BLE001 - whoever runs this says what it was, and tries again
            self._end(error)

    def _ask(self) -> None:
        self._is_due = False
        if self._ended.done():
            return
        if not self._follower:
            self._end(None)
        elif self._may_ask():
            request = self._follower.request(self._id, self._epoch)
            correlation_id = self._client.next_correlation_id()
            frame = encode_fetch_request(correlation_id, FETCH_VERSION, self._client.client_id, request)
            self._in_flight += 1
            self._epoch += 1
            self._client.submit(correlation_id, frame, self)

    def _may_ask(self) -> bool:
        if self._in_flight == 0:
            return self._follower.has_news or self._follower.is_waiting
        return self._in_flight < _MAX_IN_FLIGHT and self._id > 0 and self._follower.has_news

    # --- as told by the client

    def done(self) -> bool:
        return self._ended.done()

    def set_result(self, frame: memoryview) -> None:
        self._in_flight -= 1
        epoch = self._answered  # answers come in the order of requests
        self._answered += 1
        self._is_due = True
        try:
            response = decode_fetch_response(frame, FETCH_VERSION)
            if response.error_code:
                raise BrokerError(ErrorCode(response.error_code))
            self._id = response.session_id
            self._follower.take(response, epoch)
            self._ask()
        except Exception as error:  # noqa: BLE001 - as above
            self._end(error)

    def set_exception(self, error: BaseException) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)
            self._ended.exception()  # it is cancelled, perhaps, before it looks
