"""Messages of queues: receive, show and settle them at the leaders of the queue's partitions.

A receive asks each leader once. If none has a message, it waits at all leaders and asks again when one of
them has a message. Waiting requests use connections of their own, because responses on a connection arrive in
order. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.clock import SystemClock
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import RESPONSE_SECONDS, check_error
from penstock.internal_client.queue_contents import expires_at_ms
from penstock.internal_client.queue_deliveries import ReceivedMessage as ReceivedMessage
from penstock.internal_client.queue_deliveries import messages_of
from penstock.internal_client.receipts import Receipt
from penstock.internal_client.retries import MOVED, RETRIABLE
from penstock.internal_client.routes import Routes
from penstock.internal_client.share_groups import ShareGroupCalls
from penstock.internal_client.topic_routes import TopicRoute
from penstock.net.broker_connection import BrokerConnection
from penstock.wire.queue_receive import (
    GROUP_LOCK,
    QueueReceiveRequest,
    QueueReceiveResponse,
    ReceiveKind,
    decode_queue_receive_response,
    encode_queue_receive_request,
)
from penstock.wire.queue_settle import (
    EXPIRE,
    GROUP_DELAY,
    QueueSettlement,
    QueueSettleRequest,
    SettleResult,
    decode_queue_settle_response,
    encode_queue_settle_request,
)

MAX_RECEIVE_BYTES: Final = 4 * 1024 * 1024
_MAX_IDLE: Final = 64
"""Maximum number of idle connections that are kept for each broker."""
_PAUSE_SECONDS: Final = 0.05
_GAP: Final = 0
_CLOCK: Final = SystemClock()
_PATIENCE_SECONDS: Final = 10.0


class Settlement(NamedTuple):
    receipt: Receipt
    action: int
    """Acknowledge type of KIP-932 (1 accept, 2 release, 3 reject, 4 renew), or an extension of QueueSettle."""
    delay_ms: int = GROUP_DELAY
    reason: str = ""


class QueueMessages:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._groups = ShareGroupCalls(routes)
        self._idle: dict[int, list[BrokerConnection]] = {}
        self._turn = 0

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    # --- receiving

    async def receive(
        self,
        queue: str,
        topic: str,
        max_records: int,
        wait_ms: int = 0,
        lock_ms: int = GROUP_LOCK,
        interrupt: asyncio.Event | None = None,
    ) -> list[ReceivedMessage]:
        """Take messages; waits up to `wait_ms` for the first one, unless `interrupt` is set before.

        A receive with an interrupt waits with requests that take nothing, so that no message is lost with them.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        patience = loop.time() + _PATIENCE_SECONDS
        while True:
            left_ms = max(0, round((deadline - loop.time()) * 1000))
            try:
                found = await self._receive_once(queue, topic, max_records, left_ms, lock_ms, interrupt)
                found, is_skipped = await self._without_expired(queue, topic, found)
                if is_skipped and not found:
                    continue
                is_interrupted = interrupt is not None and interrupt.is_set()
                if found or is_interrupted or loop.time() >= deadline:
                    return found
                patience = loop.time() + _PATIENCE_SECONDS
            except (BrokerError, OSError) as error:
                self._routes.forget(topic)
                is_retriable = not isinstance(error, BrokerError) or error.code in RETRIABLE
                if not is_retriable or loop.time() >= patience:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _without_expired(
        self, queue: str, topic: str, found: list[ReceivedMessage]
    ) -> tuple[list[ReceivedMessage], bool]:
        """Settle messages that have expired. Returns the other messages, and True if there were expired ones."""
        now_ms = _CLOCK.now_ms()
        expired = [each for each in found if _is_expired(each, now_ms)]
        if not expired:
            return found, False
        settlements = [Settlement(each.place, EXPIRE) for each in expired if each.place is not None]
        await self.settle(queue, topic, settlements)
        return [each for each in found if not _is_expired(each, now_ms)], True

    async def peek(self, queue: str, topic: str, max_records: int) -> list[ReceivedMessage]:
        """Show the first messages that are not settled, without acquiring them."""
        route = await self._routes.topic(topic)
        found: list[ReceivedMessage] = []
        for partitions in _by_leader(route).values():
            request = QueueReceiveRequest(
                queue, route.id, partitions, max_records, MAX_RECEIVE_BYTES, kind=ReceiveKind.PEEK
            )
            found += await self._ask(topic, request)
        return sorted(found, key=lambda each: each.record.timestamp)[:max_records]

    async def _receive_once(
        self,
        queue: str,
        topic: str,
        max_records: int,
        wait_ms: int,
        lock_ms: int,
        interrupt: asyncio.Event | None,
    ) -> list[ReceivedMessage]:
        route = await self._routes.topic(topic)
        by_leader = _by_leader(route)
        asked = QueueReceiveRequest(queue, route.id, (), max_records, MAX_RECEIVE_BYTES, 0, lock_ms)
        if len(by_leader) == 1 and interrupt is None:
            [partitions] = by_leader.values()
            return await self._ask(topic, asked._replace(partitions=partitions, max_wait_ms=wait_ms))
        found: list[ReceivedMessage] = []
        self._turn += 1
        leaders = list(by_leader)
        start = self._turn % max(1, len(leaders))
        for leader in leaders[start:] + leaders[:start]:
            left = asked._replace(partitions=by_leader[leader], max_records=max_records - len(found))
            try:
                found += await self._ask(topic, left)
            except (BrokerError, OSError):
                if not found:
                    raise
                self._routes.forget(topic)
            if len(found) >= max_records:
                break
        if not found and wait_ms > 0:
            await self._wait_at_all(topic, asked, by_leader, wait_ms, interrupt)
        return found

    async def _wait_at_all(
        self,
        topic: str,
        asked: QueueReceiveRequest,
        by_leader: Mapping[int, tuple[int, ...]],
        wait_ms: int,
        interrupt: asyncio.Event | None,
    ) -> None:
        waiting = asked._replace(kind=ReceiveKind.WAIT, max_wait_ms=wait_ms)
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._ask(topic, waiting._replace(partitions=partitions)))
            for partitions in by_leader.values()
        ]
        if interrupt is not None:
            waits.append(asyncio.ensure_future(interrupt.wait()))
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _ask(self, topic: str, request: QueueReceiveRequest) -> list[ReceivedMessage]:
        """Send one request to a leader. If the queue has no state for new partitions of the topic, the states
        are created.
        """
        response = await self._send(topic, request)
        found = [message for each in response.partitions for message in messages_of(request, response, each)]
        failed = [each for each in response.partitions if each.error_code]
        if request.kind == ReceiveKind.TAKE:
            await self._skip_gaps(topic, request, response, found)
        if any(each.error_code == ErrorCode.invalid_request for each in failed):
            # The queue has no state of partitions that were added to the topic.
            await self._groups.initialize(request.group_id, topic)
        elif failed and not found:
            check_error(failed[0].error_code, failed[0].error_message)
        elif any(each.error_code in MOVED for each in failed):
            self._routes.forget(topic)
        return found

    async def _skip_gaps(
        self,
        topic: str,
        request: QueueReceiveRequest,
        response: QueueReceiveResponse,
        found: Sequence[ReceivedMessage],
    ) -> None:
        """Settle acquired offsets without a record, which compaction has removed."""
        taken = sum(last - first + 1 for each in response.partitions for first, last, *_ in each.ranges)
        if taken == len(found):
            return
        present = {(each.partition, each.record.offset) for each in found}
        gaps = [
            Settlement(Receipt(request.topic_id, each.partition, offset, response.token), _GAP)
            for each in response.partitions
            for first, last, *_ in each.ranges
            for offset in range(first, last + 1)
            if (each.partition, offset) not in present
        ]
        await self.settle(request.group_id, topic, gaps)

    async def _send(self, topic: str, request: QueueReceiveRequest) -> QueueReceiveResponse:
        connection, leader = await self._connection(topic, request.partitions[0], request.max_wait_ms)
        correlation_id = connection.next_correlation_id()
        frame = encode_queue_receive_request(correlation_id, connection.client_id, request)
        is_complete = False
        try:
            async with asyncio.timeout(RESPONSE_SECONDS + request.max_wait_ms / 1000):
                response = decode_queue_receive_response(await connection.exchange(correlation_id, frame))
            is_complete = True
        finally:
            if leader >= 0:
                self._return(leader, connection, is_complete)
        check_error(response.error_code, response.error_message)
        return response

    async def _connection(self, topic: str, partition: int, wait_ms: int) -> tuple[BrokerConnection, int]:
        """Return a connection to a leader. The second value is the leader's id if only this call uses the
        connection, else -1.
        """
        if wait_ms <= 0:
            return await self._routes.leader(topic, partition), -1
        _, broker = await self._routes.find_leader(topic, partition)
        idle = self._idle.get(broker.node_id, [])
        while idle:
            connection = idle.pop()
            if connection.is_connected:
                return connection, broker.node_id
        return await self._routes.open_to_leader(topic, partition), broker.node_id

    def _return(self, leader: int, connection: BrokerConnection, is_complete: bool) -> None:
        idle = self._idle.setdefault(leader, [])
        if is_complete and connection.is_connected and len(idle) < _MAX_IDLE:
            idle.append(connection)
        else:
            connection.close()

    # --- settling

    async def settle(
        self, queue: str, topic: str, settlements: Sequence[Settlement]
    ) -> list[BrokerError | None]:
        """Settle messages. Returns None or the error for each settlement, in order."""
        route = await self._routes.topic(topic)
        results: list[BrokerError | None] = [None] * len(settlements)
        by_leader: dict[int, list[int]] = {}
        for place, settlement in enumerate(settlements):
            receipt = settlement.receipt
            if receipt.topic_id != route.id or receipt.partition >= len(route.partitions):
                results[place] = _not_held()
            else:
                by_leader.setdefault(route.partitions[receipt.partition].leader, []).append(place)
        await asyncio.gather(
            *(
                self._settle_at_leader(queue, topic, settlements, places, results)
                for places in by_leader.values()
            )
        )
        return results

    async def _settle_at_leader(
        self,
        queue: str,
        topic: str,
        settlements: Sequence[Settlement],
        places: Sequence[int],
        results: list[BrokerError | None],
    ) -> None:
        ranges = _in_ranges(settlements, places)
        await self._settle_ranges(queue, topic, settlements, ranges, results)
        # A refused range is refused as a whole, so its messages are settled one by one.
        alone = [
            [place] for each in ranges if len(each) > 1 and _is_refused(results[each[0]]) for place in each
        ]
        if alone:
            await self._settle_ranges(queue, topic, settlements, alone, results)

    async def _settle_ranges(
        self,
        queue: str,
        topic: str,
        settlements: Sequence[Settlement],
        ranges: Sequence[Sequence[int]],
        results: list[BrokerError | None],
    ) -> None:
        """Settle ranges of messages with one request. Each range is a list of indexes in `settlements`."""
        chosen = tuple(_as_sent(settlements[each[0]], settlements[each[-1]]) for each in ranges)
        try:
            connection = await self._routes.leader(topic, chosen[0].partition)
            outcomes = await _settle(connection, QueueSettleRequest(queue, chosen))
        except BrokerError as error:
            outcomes = [SettleResult(error.code, str(error))] * len(ranges)
        except OSError as error:
            self._routes.forget(topic)
            unknown = SettleResult(
                ErrorCode.network_exception, f"the response was lost; the message may be settled: {error}"
            )
            outcomes = [unknown] * len(ranges)
        for places, (code, message) in zip(ranges, outcomes, strict=True):
            refusal = None
            if code in MOVED:
                self._routes.forget(topic)
                refusal = _not_held()
            elif code:
                refusal = BrokerError(ErrorCode(code), message)
            for place in places:
                results[place] = refusal


def _in_ranges(settlements: Sequence[Settlement], places: Sequence[int]) -> list[list[int]]:
    """Indexes in `settlements`, grouped into ranges of the same delivery and outcome with consecutive offsets."""
    ranges: list[list[int]] = []
    before, expected = None, -1
    for place in places:
        (_, partition, offset, token), *outcome = settlements[place]
        found = partition, token, outcome
        if found == before and offset == expected:
            ranges[-1].append(place)
        else:
            ranges.append([place])
        before, expected = found, offset + 1
    return ranges


def _is_refused(refusal: BrokerError | None) -> bool:
    return refusal is not None and refusal.code in (ErrorCode.invalid_record_state, ErrorCode.invalid_request)


def _is_expired(message: ReceivedMessage, now_ms: int) -> bool:
    expires_ms = expires_at_ms(message.record.headers, message.record.timestamp)
    return expires_ms is not None and expires_ms <= now_ms


def _not_held() -> BrokerError:
    return BrokerError(
        ErrorCode.invalid_record_state,
        "the receipt is no longer valid: its lock has expired, the message was settled, or it belongs to another "
        "queue",
    )


def _as_sent(first: Settlement, last: Settlement) -> QueueSettlement:
    receipt = first.receipt
    place = receipt.topic_id, receipt.partition, receipt.token, receipt.offset, last.receipt.offset
    return QueueSettlement(*place, first.action, first.delay_ms, first.reason)


async def _settle(connection: BrokerConnection, request: QueueSettleRequest) -> Sequence[SettleResult]:
    correlation_id = connection.next_correlation_id()
    frame = encode_queue_settle_request(correlation_id, connection.client_id, request)
    async with asyncio.timeout(RESPONSE_SECONDS):
        response = decode_queue_settle_response(await connection.exchange(correlation_id, frame))
    check_error(response.error_code, response.error_message)
    return response.results


def _by_leader(route: TopicRoute) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for number, partition in enumerate(route.partitions):
        if partition.leader >= 0:
            found[partition.leader] = (*found.get(partition.leader, ()), number)
    if not found:
        raise BrokerError(ErrorCode.leader_not_available, f"{route.name} has no leader at present")
    return found
