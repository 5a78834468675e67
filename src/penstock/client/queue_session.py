"""Requests of `Queue` and `AsyncQueue` to brokers: sending, receiving, settling, and extending locks.

Messages settled in the same turn of the event loop share a request. The locks of messages in work are extended after a
third of their time, until `max_lock_s` has passed since the message was received. All methods run on one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final
from uuid import uuid4

from penstock.client.errors import (
    BrokerUnreachable,
    ClientError,
    InvalidSetting,
    NotSerializable,
    QueueUnknown,
)
from penstock.client.internal_connection import InternalConnection
from penstock.clock import SystemClock
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.keyed_reads import KeyedReads
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.producer import IdempotentProducer
from penstock.internal_client.queue_contents import decode_content, encode_content, option_headers
from penstock.internal_client.queue_messages import ReceivedMessage, Settlement
from penstock.internal_client.queue_retention import retain_configs
from penstock.internal_client.queue_settler import QueueSettler
from penstock.internal_client.queues import NewQueue
from penstock.internal_client.receipts import Receipt
from penstock.internal_client.replies import REPLY_TO, ReplyCalls, parse_reply_place
from penstock.records.building import NewRecord
from penstock.records.content import Headers
from penstock.unreachable import Unreachable
from penstock.wire.queue_receive import GROUP_LOCK
from penstock.wire.queue_settle import GROUP_DELAY, RETURN

ACCEPT, RELEASE, REJECT, EXTEND = 1, 2, 3, 4
_PATIENCE_S: Final = 30.0
_CLOCK: Final = SystemClock()
_CLOSE_SECONDS: Final = 5.0
_REPLY_MS: Final = 20
"""A request message expires this many milliseconds before the requester's timeout: a later reply would not arrive in
time.
"""
_DELAY_CONFIG: Final = "delivery.delay"


class ReceiptExpired(ClientError):
    """The lock of the message has expired, or the message was settled before. It may have been delivered to another
    receiver.
    """


class NoReply(ClientError, TimeoutError):
    """No reply arrived in time. The request message expires, unless a consumer has received it already."""


class HeldLock:
    """The lock of a message in work, which is extended until `deadline`."""

    __slots__ = ("deadline", "lock_s", "next_at", "receipt")

    def __init__(self, receipt: Receipt, lock_s: float, now: float, max_lock_s: float) -> None:
        self.receipt = receipt
        self.lock_s = lock_s
        self.deadline = now + max_lock_s
        self.next_at = now + self.lock_s / 3


class QueueSession:
    def __init__(
        self, name: str, connection: InternalConnection, lock_s: float | None, max_lock_s: float
    ) -> None:
        self.name = name
        self._lock_ms = GROUP_LOCK if lock_s is None else max(1, round(lock_s * 1000))
        self._max_lock_s = max_lock_s
        self._client = connection.open("penstock-queue", _PATIENCE_S)
        routes = self._client.routes
        self._producer = IdempotentProducer(routes, _PATIENCE_S)
        self._keyed_reads = KeyedReads(routes.network, routes, routes.client_id)
        self._replies = ReplyCalls(self._client.topics, self._keyed_reads, self._producer)
        self._turns = count()
        self._held: dict[Receipt, HeldLock] = {}
        self._extending: asyncio.Task[None] | None = None
        self._settler = QueueSettler(self._settle_all)
        self._delayed_topics: set[str] = set()

    async def close(self, *, has_failed: bool = False) -> None:
        """Release the messages that are not settled, with the queue's back-off if `has_failed`; then close all
        connections.
        """
        if self._extending is not None:
            self._extending.cancel()
        held, self._held = list(self._held), {}
        delay_ms = GROUP_DELAY if has_failed else 0
        settlements = [Settlement(each, RELEASE, delay_ms) for each in held]
        if settlements:
            # On failure brokers deliver the messages again when their locks expire.
            with suppress(PenstockError, OSError, TimeoutError):
                await asyncio.wait_for(self._settle_all(settlements), _CLOSE_SECONDS)
        self._keyed_reads.close()
        await self._producer.close()
        await self._client.__aexit__()

    async def _topic(self) -> str:
        return (await self._client.queues.get_known(self.name)).topic

    async def create(
        self,
        of: str | None,
        partitions: int | None,
        settings: Mapping[str, Any],
        filter_text: str = "",
        retain: str = "",
    ) -> None:
        """Create the queue. Raises ClientError if it exists."""
        if filter_text and of is None:
            raise InvalidSetting("a queue with a filter or a route reads an existing topic: name it with of=")
        values = {name: str(value) for name, value in settings.items() if value is not None}
        new = NewQueue(self.name, of, partitions or -1, settings=values, filter=filter_text, retain=retain)
        try:
            retain_configs(retain)
        except ValueError as error:
            raise InvalidSetting(f"retain={retain[:80]!r}: {error}") from None
        with translated(self.name):
            await self._client.queues.create(new)

    # --- sending

    async def send(self, value: Any, key: str | bytes | None, options: Mapping[str, Any]) -> tuple[int, int]:
        """Send one message; returns its partition and offset once it is stored."""
        with translated(self.name):
            topic = (await self._client.queues.get_known(self.name)).sent_to
            if options.get("delay_ms"):
                await self._require_delay(topic)
            content, content_type = _encode(value)
            encoded = None if key is None else _as_bytes("key", key)
            given = (options.get("headers") or {}).items()
            own = tuple((name, _as_bytes(f"header {name!r}", each)) for name, each in given)
            headers = (*content_type, *option_headers(options), *own)
            record = NewRecord(encoded, content, _CLOCK.now_ms(), headers)
            turn, known = next(self._turns), 0
            while True:
                partitions = (await self._client.topics.get(topic, fresh=bool(known))).active_count
                partition = turn % partitions if encoded is None else partition_for(encoded, partitions)
                try:
                    return partition, await self._producer.send(topic, partition, record)
                except BrokerError as error:
                    if error.code is not ErrorCode.unknown_topic_or_partition or known == partitions:
                        raise
                    known = partitions  # the topic has fewer partitions now, or does not exist

    async def _require_delay(self, topic: str) -> None:
        if topic in self._delayed_topics:
            return
        entries = await self._client.configs.get(ConfigResourceType.TOPIC, topic)
        if not any(entry.name == _DELAY_CONFIG and entry.value == "true" for entry in entries):
            raise InvalidSetting(
                f"a delay needs a topic that was created with {_DELAY_CONFIG}=true; {topic} was not"
            )
        self._delayed_topics.add(topic)

    # --- receiving

    async def default_prefetch(self, workers: int) -> int:
        """Default number of messages received in advance for the workers: 0 if the order of messages matters, else
        `workers`.
        """
        with translated(self.name):
            queue = await self._client.queues.get_known(self.name)
        return 0 if queue.priorities or queue.order == "key" else workers

    async def receive(self, max_messages: int, wait_s: float) -> list[ReceivedMessage]:
        """Receive messages, and extend their locks until they are settled."""
        with translated(self.name):
            topic = await self._topic()
            found = await self._client.queue_messages.receive(
                self.name, topic, max_messages, round(wait_s * 1000), self._lock_ms
            )
        now = asyncio.get_running_loop().time()
        for message in found:
            if message.place is not None:
                lock_s = message.lock_ms / 1000
                self._held[message.place] = HeldLock(message.place, lock_s, now, self._max_lock_s)
        if found and (self._extending is None or self._extending.done()):
            self._extending = asyncio.get_running_loop().create_task(self._extend_locks())
        return found

    async def _extend_locks(self) -> None:
        loop = asyncio.get_running_loop()
        while self._held:
            next_at = min(each.next_at for each in self._held.values())
            await asyncio.sleep(max(0.01, next_at - loop.time()))
            now = loop.time()
            due = [each for each in self._held.values() if each.next_at <= now]
            for held in due:
                held.next_at = now + held.lock_s / 3
                if now >= held.deadline:
                    self._held.pop(held.receipt, None)
            asked = [each for each in due if each.receipt in self._held]
            try:
                await self._extend([each.receipt for each in asked], [each.lock_s for each in asked])
            except (ClientError, BrokerError, OSError):
                continue  # the next attempt follows after another third of the lock time

    async def _extend(self, receipts: Sequence[Receipt], seconds: Sequence[float]) -> None:
        if not receipts:
            return
        settlements = [
            Settlement(receipt, EXTEND, max(1, round(each * 1000)))
            for receipt, each in zip(receipts, seconds, strict=True)
        ]
        results = await self._client.queue_messages.settle(self.name, await self._topic(), settlements)
        for receipt, error in zip(receipts, results, strict=True):
            if error is not None and error.code is ErrorCode.invalid_record_state:
                self._held.pop(receipt, None)

    # --- settling

    async def settle(
        self, receipt: Receipt, action: int, delay_s: float | None = None, reason: str = ""
    ) -> None:
        """Settle a message. Raises ReceiptExpired if its lock has expired, or if it was settled before."""
        delay_ms = GROUP_DELAY if delay_s is None else max(0, round(delay_s * 1000))
        if action == EXTEND:
            delay_ms = max(1, delay_ms)
        else:
            self._held.pop(receipt, None)
        with translated(self.name):
            await self._settler.settle(Settlement(receipt, action, delay_ms, reason))

    async def settle_many(self, asked: Sequence[tuple[Receipt, int]]) -> Sequence[BrokerError | None]:
        """Settle messages, each with its own action, with one request per leader. Returns an error or None for each
        message.
        """
        for receipt, _ in asked:
            self._held.pop(receipt, None)
        with translated(self.name):
            return await self._settle_all(
                [
                    Settlement(receipt, action, 0 if action == RETURN else GROUP_DELAY)
                    for receipt, action in asked
                ]
            )

    async def _settle_all(self, settlements: Sequence[Settlement]) -> Sequence[BrokerError | None]:
        return await self._client.queue_messages.settle(self.name, await self._topic(), settlements)

    # --- requests and replies

    async def request(
        self, value: Any, key: str | bytes | None, timeout_s: float, headers: Mapping[str, Any] | None
    ) -> Any:
        """Send a request and return its reply. Raises NoReply if no reply arrives within `timeout_s`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        with translated(self.name):
            await self._topic()
            place = await self._replies.place(self.name, uuid4().hex)
        left_ms = round((deadline - loop.time()) * 1000) - _REPLY_MS
        if left_ms <= 0:
            raise NoReply(f"{self.name} took longer than {timeout_s:g} s; the request was not sent")
        options = {"ttl_ms": left_ms, "headers": {**(headers or {}), REPLY_TO: str(place)}}
        await self.send(value, key, options)
        with translated(self.name):
            found = await self._replies.wait(place, max(0.0, deadline - loop.time()))
        if found is None:
            raise NoReply(f"no reply of {self.name} within {timeout_s:g} s")
        return decode_content(found.value, found.headers)

    async def reply(self, headers: Mapping[str, bytes | None], value: Any) -> bool:
        """Store the reply to a request. Return False if it has a reply already. Raises ClientError for a message that
        is not a request.
        """
        asked = headers.get(REPLY_TO)
        if asked is None:
            raise ClientError(f"the message has no header {REPLY_TO}: it was not sent with request()")
        content, content_type = _encode(value)
        try:
            place = parse_reply_place(asked.decode(errors="replace"), self.name)
        except ValueError as error:
            raise ClientError(str(error)) from None
        with translated(self.name):
            return await self._replies.reply(place, content, content_type, _CLOCK.now_ms())


def raise_first(queue: str, errors: Sequence[BrokerError | None]) -> None:
    """Raise the first error in `errors`, as an exception of the client."""
    for error in errors:
        if error is not None:
            with translated(queue):
                raise error


def _as_bytes(what: str, value: object) -> bytes:
    if not isinstance(value, str | bytes):
        raise NotSerializable(f"the {what} is {type(value).__name__}; give str or bytes")
    return value.encode() if isinstance(value, str) else value


def _encode(value: object) -> tuple[bytes | None, Headers]:
    try:
        return encode_content(value)
    except (TypeError, ValueError) as error:
        raise NotSerializable(f"the value is neither bytes, text nor JSON: {error}") from None


class translated:
    """Translate errors of brokers inside this block into exceptions of the client."""

    def __init__(self, queue: str) -> None:
        self._queue = queue

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Unreachable):
            raise BrokerUnreachable(str(error)) from error
        if isinstance(error, BrokerError):
            name = error.code.name.upper()
            if error.code is ErrorCode.group_id_not_found:
                raise QueueUnknown(str(error), name) from error
            if error.code is ErrorCode.invalid_record_state:
                raise ReceiptExpired(str(error), name) from error
            raise ClientError(f"queue {self._queue}: {error}", name) from error
