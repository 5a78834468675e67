"""Fetch requests on one connection to a leader. A response is applied, and the next request is sent, in the turn of the
event loop in which the response arrives.

A request waits at the leader until there are records. If the offsets of this broker change before, it sends a second
request, which ends the wait. Callbacks are used instead of tasks, because producers with acks=all wait for this path.
Loop thread only.
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


class SessionFollower(Protocol):
    """Fetcher that builds the requests and applies the responses."""

    def __len__(self) -> int:
        """Number of followed partitions. The session ends if there are none."""
        ...

    @property
    def has_news(self) -> bool:
        """True if partitions have to be named in the next request."""
        ...

    @property
    def is_waiting(self) -> bool:
        """True if a partition waits for records at the leader; False while all of them are being fsynced here."""
        ...

    def request(self, session_id: int, session_epoch: int) -> FetchRequest: ...

    def take(self, response: FetchResponse, session_epoch: int) -> None:
        """Apply the response to the request with this session epoch."""
        ...


class LeaderSession:
    def __init__(self, client: BrokerConnection, follower: SessionFollower) -> None:
        self._client = client
        self._follower = follower
        self._id = 0
        """Fetch session id; 0 until the first response, before which no second request is sent."""
        self._epoch = 0
        self._in_flight = 0
        self._answered = 0
        self._is_due = False
        """True if a request will be sent in this turn of the event loop anyway, so that `on_news` need not schedule it.
        """
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, silence_seconds: float) -> None:
        """Fetch until no partition is followed. Errors of the session are raised; TimeoutError if the leader does not
        respond within `silence_seconds`.
        """
        self._ask()
        while not self._ended.done():
            answered, has_asked = self._answered, self._in_flight > 0
            await asyncio.wait([self._ended], timeout=silence_seconds)
            if has_asked and self._answered == answered and not self._ended.done():
                raise TimeoutError("the leader does not respond")
        self._ended.result()

    def on_news(self) -> None:
        """Schedule a request with changed offsets. All changes in one turn of the event loop share one request."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        try:
            self._ask()
        except Exception as error:  # noqa: BLE001 - the caller of `run` logs the error and retries
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

    # --- callbacks of the client

    def done(self) -> bool:
        return self._ended.done()

    def set_result(self, frame: memoryview) -> None:
        self._in_flight -= 1
        epoch = self._answered  # responses come in the order of the requests
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
            self._ended.exception()  # marks the error as retrieved: `run` may be cancelled before it reads the result
