"""Produce requests to brokers: the batches of one loop turn for a connection share a request. While many
batches wait for their results, all batches of two milliseconds share one.

Every batch has its own result. Responses on a connection arrive in the order of the requests, so a batch
waits no longer in a shared request than in its own. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import NamedTuple, Protocol

from penstock.errors import ProtocolError
from penstock.net.acting import Actor, with_actor
from penstock.net.broker_connection import BrokerConnection
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceResult, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request

ATTEMPT_SECONDS = 10.0
"""Maximum time in seconds that a broker waits for the in-sync replicas to store a batch."""
MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Size in bytes of the batches in a request from which on the request takes no further batch."""
MANY_BATCHES = 16
"""Number of batches without a result from which on requests to a broker are delayed, so that batches share them."""
APART_SECONDS = 0.002
"""Seconds between two requests to a broker while many batches wait."""
_PRODUCE_VERSION = 12
"""First version in which a Produce request adds its partitions to the transaction (KIP-890)."""
_ACKS_ALL = -1

Place = tuple[str, int]
"""Topic name and partition index."""


class ResultReceiver(Protocol):
    """Receiver of a result: a future, or an object that is called in the loop turn in which the response arrives."""

    def done(self) -> bool:
        """True if the result has arrived or is no longer wanted."""
        ...

    def set_result(self, result: ProduceResult, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


_Sender = tuple[BrokerConnection, str | None, Actor | None]
"""Connection, transactional id, and client for which a gateway sends. Batches share a request if all three
are equal.
"""


class _Batch(NamedTuple):
    place: Place
    records: bytes | bytearray
    result: ResultReceiver
    deadline: float


class ProduceRequests:
    def __init__(self) -> None:
        self._waiting: dict[_Sender, list[_Batch]] = {}
        self._in_flight: Counter[BrokerConnection] = Counter()
        """Number of batches without a result, by connection."""
        self._sent_at = 0.0

    def send(
        self,
        connection: BrokerConnection,
        transactional_id: str | None,
        place: Place,
        records: bytes | bytearray,
        actor: Actor | None = None,
    ) -> asyncio.Future[ProduceResult]:
        """Send one batch at the end of this loop turn. The future gets the broker's result.

        If there is no result, the future gets the error of the connection, or ProtocolError.
        """
        result: asyncio.Future[ProduceResult] = asyncio.get_running_loop().create_future()
        self.submit(connection, transactional_id, place, records, result, actor=actor)
        return result

    def submit(
        self,
        connection: BrokerConnection,
        transactional_id: str | None,
        place: Place,
        records: bytes | bytearray,
        result: ResultReceiver,
        deadline: float = inf,
        actor: Actor | None = None,
    ) -> None:
        """Send one batch as `send` does, with a receiver for the result. At the deadline the receiver gets
        TimeoutError.

        `actor` is the client for which a gateway sends.
        """
        loop = asyncio.get_running_loop()
        key = connection, transactional_id, actor
        batches = self._waiting.get(key)
        if batches is None:
            batches = self._waiting[key] = []
            if self._in_flight[connection] < MANY_BATCHES:
                loop.call_soon(self._flush, key)
            else:
                due = max(loop.time(), self._sent_at + APART_SECONDS)
                loop.call_at(due, self._flush, key)
        batches.append(_Batch(place, records, result, deadline))

    def _flush(self, sender: _Sender) -> None:
        batches = self._waiting.pop(sender)
        connection, transactional_id, actor = sender
        client_id = with_actor(connection.own_client_id, actor)
        self._sent_at = asyncio.get_running_loop().time()
        for shared in _requests_of(batches):
            topics: dict[str, ProduceTopic] = {}
            for (name, partition), batch in shared.items():
                topic = topics.get(name)
                if topic is None:
                    topic = topics[name] = ProduceTopic(name, None, [])
                topic.partitions.append(ProducePartition(partition, memoryview(batch.records)))
            timeout_ms = int(ATTEMPT_SECONDS * 1000)
            request = ProduceRequest(transactional_id, _ACKS_ALL, timeout_ms, list(topics.values()))
            correlation_id = connection.next_correlation_id()
            frame = encode_produce_request(correlation_id, _PRODUCE_VERSION, client_id, request)
            self._in_flight[connection] += len(shared)
            results = _Results(shared, partial(self._on_end, connection, len(shared)))
            results.start_timer()
            connection.submit(correlation_id, frame, results)

    def _on_end(self, connection: BrokerConnection, count: int) -> None:
        self._in_flight[connection] -= count
        if not self._in_flight[connection]:
            del self._in_flight[connection]


class _Results:
    """Receiver of one response, which distributes the results to the batches."""

    def __init__(self, batches: dict[Place, _Batch], on_end: Callable[[], None]) -> None:
        """`on_end` is called once, before the batches get their results."""
        self._batches = batches
        self._on_end: Callable[[], None] | None = on_end
        self._timer: asyncio.TimerHandle | None = None

    def start_timer(self) -> None:
        """Fail all batches at the earliest of their deadlines. Their senders may send them again."""
        deadline = min(batch.deadline for batch in self._batches.values())
        if deadline < inf:
            error = TimeoutError("the broker does not respond")
            self._timer = asyncio.get_running_loop().call_at(deadline, self.set_exception, error)

    def done(self) -> bool:
        return False

    def set_result(self, frame: memoryview, /) -> None:
        try:
            topics = decode_produce_response(frame, _PRODUCE_VERSION).topics
        except ProtocolError as error:
            self.set_exception(error)
            return
        self._end()
        for topic in topics:
            for result in topic.partitions:
                batch = self._batches.pop((topic.name or "", result.index), None)
                if batch is not None and not batch.result.done():
                    batch.result.set_result(result)
        if self._batches:
            self.set_exception(ProtocolError("the broker responded without a result for each partition"))

    def set_exception(self, error: BaseException, /) -> None:
        self._end()
        for batch in self._batches.values():
            if not batch.result.done():
                batch.result.set_exception(error)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            on_end()


def _requests_of(batches: list[_Batch]) -> Iterator[dict[Place, _Batch]]:
    """Distribute the batches among requests, with at most one batch of each partition in a request."""
    shared: dict[Place, _Batch] = {}
    size = 0
    for batch in batches:
        if batch.result.done():
            # The caller has given up before the batch was sent.
            continue
        if size >= MAX_REQUEST_BYTES or batch.place in shared:
            yield shared
            shared, size = {}, 0
        shared[batch.place] = batch
        size += len(batch.records)
    if shared:
        yield shared
