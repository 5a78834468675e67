"""Reads of single keys, any number at the same time, over one connection to each broker.

All lookups of one loop turn share a request; while many lookups wait, all lookups of a few milliseconds share
one. While a lookup is pending, a request waits at the broker, and the next request ends that wait
(`wire/fetch_by_key.py`). Errors are those of `Routes`. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from penstock.config import Address
from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.internal_client.api import check_error
from penstock.internal_client.connections import CONNECT_SECONDS
from penstock.internal_client.retries import retry
from penstock.internal_client.routes import Routes
from penstock.model import TopicId
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import Network
from penstock.unreachable import ConnectionLost
from penstock.wire.fetch_by_key import (
    FetchByKeyRequest,
    KeyLookup,
    KeyResult,
    decode_fetch_by_key_response,
    encode_fetch_by_key_request,
)

_MAX_ID = 2**31 - 1
_LATE_SECONDS = 10.0
"""Seconds after the end of its wait at which a lookup without a result fails. If the broker has sent nothing
at all for this time, all its lookups fail.
"""
_LOOK_SECONDS = 2.0
_APART_SECONDS = 0.003
"""Seconds between two requests to a broker while many lookups wait. Lookups that arrive meanwhile share the
next request.
"""
_MANY = 16


class KeyedRead(NamedTuple):
    """A read of the committed records of a key, starting at `from_offset`. The limits apply, but at least one
    record is returned.

    If there is no record, the broker waits for one for up to `max_wait_ms`.
    """

    topic: str
    partition: int
    key: bytes
    from_offset: int = 0
    max_records: int = 1000
    max_bytes: int = 1024 * 1024
    max_wait_ms: int = 0


class KeyReceiver(Protocol):
    """Receiver of a result: a future, or an object that is called in the loop turn in which the response arrives."""

    def done(self) -> bool: ...

    def set_result(self, result: KeyResult, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


class RecordDamaged(BrokerError):
    """A record of the key cannot be read from the disk. Records from `next_offset` on may be readable."""

    def __init__(self, next_offset: int) -> None:
        super().__init__(ErrorCode.corrupt_message, "a record is damaged on the disk")
        self.next_offset = next_offset


class KeyedReads:
    def __init__(self, network: Network, routes: Routes, client_id: str) -> None:
        self._network = network
        self._routes = routes
        self._client_id = client_id
        self._conversations: dict[Address, _Conversation] = {}

    def close(self) -> None:
        for conversation in self._conversations.values():
            conversation.close()

    async def read(self, wanted: KeyedRead, seconds: float) -> KeyResult:
        """Read at the leader, with retries for `seconds`; then raise the last error.

        If a change of leader ends a wait, a new wait begins within `seconds`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds

        async def attempt() -> KeyResult:
            left_ms = max(0, round((deadline - loop.time()) * 1000))
            try:
                return await self._ask_leader(wanted, min(wanted.max_wait_ms, left_ms))
            except (BrokerError, OSError):
                self._routes.forget(wanted.topic)
                raise

        return await retry(attempt, seconds)

    def begin(self, wanted: KeyedRead, receiver: KeyReceiver) -> Callable[[], None] | None:
        """Look up once at the leader, without retries. Returns a function that gives up the lookup.

        Returns None, and does nothing, if the leader is unknown or not connected.
        """
        known = self._routes.known_leader(wanted.topic, wanted.partition)
        if known is None:
            return None
        topic, leader = known
        conversation = self._conversations.get(leader.address)
        if conversation is None or conversation.is_over:
            return None
        epoch = topic.partitions[wanted.partition].leader_epoch
        lookup_id = conversation.submit(wanted, topic.id, epoch, wanted.max_wait_ms, receiver)
        return partial(conversation.give_up, lookup_id)

    async def _ask_leader(self, wanted: KeyedRead, max_wait_ms: int) -> KeyResult:
        topic, leader = await self._routes.find_leader(wanted.topic, wanted.partition)
        conversation = self._conversations.get(leader.address)
        if conversation is None or conversation.is_over:
            conversation = _Conversation(self._network, leader.address, self._client_id)
            self._conversations[leader.address] = conversation
        epoch = topic.partitions[wanted.partition].leader_epoch
        result = await conversation.look_up(wanted, topic.id, epoch, max_wait_ms)
        if result.error_code == ErrorCode.corrupt_message:
            raise RecordDamaged(result.next_offset)
        check_error(result.error_code)
        return result


class _Conversation:
    """The lookups at one broker over one connection. The first failure ends it and fails all pending lookups."""

    def __init__(self, network: Network, address: Address, client_id: str) -> None:
        self._is_over = False
        self._client: BrokerConnection | None = None
        self._last_id = 0
        self._new: list[KeyLookup] = []
        self._given_up: list[int] = []
        self._waiting: dict[int, KeyReceiver] = {}
        self._deadlines: dict[int, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = self._sent_at = 0.0
        self._requests = 0
        """Number of requests in flight."""
        self._is_due = True
        self._opening = asyncio.get_running_loop().create_task(self._open(network, address, client_id))

    @property
    def is_over(self) -> bool:
        return self._is_over or (self._client is not None and not self._client.is_connected)

    def close(self) -> None:
        self._opening.cancel()
        self._fail(ConnectionLost("the connection was closed"))

    async def look_up(
        self, wanted: KeyedRead, topic_id: TopicId, leader_epoch: int, max_wait_ms: int
    ) -> KeyResult:
        result: asyncio.Future[KeyResult] = asyncio.get_running_loop().create_future()
        lookup_id = self.submit(wanted, topic_id, leader_epoch, max_wait_ms, result)
        try:
            return await result
        except asyncio.CancelledError:
            self.give_up(lookup_id)
            raise

    def submit(
        self,
        wanted: KeyedRead,
        topic_id: TopicId,
        leader_epoch: int,
        max_wait_ms: int,
        receiver: KeyReceiver,
    ) -> int:
        """Send a lookup together with the others of this loop turn. Returns its id."""
        lookup_id = self._last_id = self._last_id % _MAX_ID + 1
        limits = wanted.max_records, wanted.max_bytes, max_wait_ms
        where = wanted.partition, wanted.key, wanted.from_offset
        self._new.append(KeyLookup(lookup_id, topic_id, *where, *limits, leader_epoch))
        loop = asyncio.get_running_loop()
        self._waiting[lookup_id] = receiver
        self._deadlines[lookup_id] = loop.time() + max_wait_ms / 1000 + _LATE_SECONDS
        if self._timer is None:
            self._timer = loop.call_later(_LOOK_SECONDS, self._look)
        self._send_soon()
        return lookup_id

    def give_up(self, lookup_id: int) -> None:
        """Cancel a lookup at the broker, unless its result has arrived."""
        if self._waiting.pop(lookup_id, None) is not None:
            self._given_up.append(lookup_id)
            self._send_soon()

    def _look(self) -> None:
        """Fail late lookups, or all lookups if the broker no longer responds."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        self._deadlines = {each: self._deadlines[each] for each in self._waiting}
        late = [lookup_id for lookup_id, deadline in self._deadlines.items() if deadline < now]
        if late and self._heard_at < now - _LATE_SECONDS:
            self._fail(TimeoutError("the broker does not respond"))
            return
        for lookup_id in late:
            waiting = self._waiting.pop(lookup_id)
            if not waiting.done():
                waiting.set_exception(TimeoutError("the lookup took too long"))
            self._given_up.append(lookup_id)
        if late:
            self._send_soon()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    async def _open(self, network: Network, address: Address, client_id: str) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                self._client = await BrokerConnection.connect(network, address.host, address.port, client_id)
        except OSError as error:
            self._fail(error)
            return
        self._is_due = False
        self._send_soon()

    def _send_soon(self) -> None:
        if not self._is_due and not self._is_over:
            self._is_due = True
            loop = asyncio.get_running_loop()
            if len(self._waiting) < _MANY:
                loop.call_soon(self._send)
            else:
                loop.call_at(max(loop.time(), self._sent_at + _APART_SECONDS), self._send)

    def _send(self) -> None:
        self._is_due = False
        has_news = self._new or self._given_up
        if self._is_over or not (has_news or (self._waiting and self._requests == 0)):
            return
        assert self._client is not None
        request = FetchByKeyRequest(tuple(self._new), tuple(self._given_up))
        self._new, self._given_up = [], []
        correlation_id = self._client.next_correlation_id()
        frame = encode_fetch_by_key_request(correlation_id, self._client.own_client_id, request)
        self._requests += 1
        self._sent_at = asyncio.get_running_loop().time()
        self._client.exchange(correlation_id, frame).add_done_callback(self._on_response)

    def _on_response(self, response: asyncio.Future[memoryview]) -> None:
        self._requests -= 1
        self._heard_at = asyncio.get_running_loop().time()
        error = response.exception()
        if error is not None:
            self._fail(error)
            return
        try:
            results = decode_fetch_by_key_response(response.result())
        except ProtocolError as problem:
            self._fail(problem)
            return
        for result in results:
            waiting = self._waiting.pop(result.id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(result)
        self._send_soon()

    def _fail(self, error: BaseException) -> None:
        self._is_over = True
        if self._client is not None:
            self._client.close()
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        for result in waiting.values():
            if not result.done():
                result.set_exception(error)
