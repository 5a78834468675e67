"""One QueueReceive request: acquires messages of a queue, shows them without acquiring them (peek), or waits for them,
in the partitions that this broker leads.

Each request acquires its messages as a new member with a random token as its name, so a receipt is valid on any
connection until its lock ends, its record is settled, or the partition gets another leader. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

from penstock.clock import monotonic_ms
from penstock.config import FETCH_MAX_BYTES, FETCH_MAX_WAIT_MS
from penstock.errors import BrokerError, ErrorCode, WouldBlock
from penstock.model import ShareKey, TopicId
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.queues.share_leader import ShareLeader
from penstock.queues.share_reading import ShareFetchLimits
from penstock.queues.states import AcquireMode
from penstock.server.dispatch import Request
from penstock.server.security import Operation, ResourceType
from penstock.server.share_acknowledging import ShareTargets
from penstock.server.share_cold_reads import ReadingTime, warm, warm_for_others
from penstock.wire.queue_receive import (
    TOKEN_BYTES,
    QueueReceiveRequest,
    QueueReceiveResponse,
    ReceivedPartition,
    ReceivedRange,
    ReceiveKind,
    encode_queue_receive_response,
)

MAX_PARTITIONS: Final = 10_000
MAX_LOCK_MS: Final = 12 * 3_600_000
_VERIFY_SECONDS: Final = 1.0
_LOADED_AGAIN = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.fenced_state_epoch,
)
"""Errors after which a closed share-partition is looked up again; the client does not see them."""


def member_of(token: bytes) -> str:
    """Member id for the deliveries of one request. It is longer than member ids of clients may be, so no client can use
    it.
    """
    return "delivery:" + token.hex()


def check_lock_ms(lock_ms: int) -> None:
    if not -1 <= lock_ms <= MAX_LOCK_MS or lock_ms == 0:
        raise BrokerError(
            ErrorCode.invalid_request, f"a lock of {lock_ms} ms is not between 1 and {MAX_LOCK_MS} ms"
        )


class QueueReceiving:
    def __init__(self, request: Request, asked: QueueReceiveRequest) -> None:
        _check(asked)
        config = request.context.config
        self._request = request
        self._asked = asked
        self._targets = ShareTargets(request)
        self._token = request.context.random.getrandbits(8 * TOKEN_BYTES).to_bytes(TOKEN_BYTES, "big")
        self._member = member_of(self._token)
        self._max_bytes = max(1, min(asked.max_bytes, config[FETCH_MAX_BYTES]))
        self._wait_ms = max(0, min(asked.max_wait_ms, config[FETCH_MAX_WAIT_MS]))
        topic_id = TopicId(asked.topic_id)
        self._keys = [ShareKey(asked.group_id, topic_id, each) for each in dict.fromkeys(asked.partitions)]
        self._reading_time = ReadingTime(self._wait_ms)
        self._waits_for: list[ShareLeader] = []
        self._found: list[ReceivedPartition] = []
        self._is_reading = self._is_ended = False
        self._is_partial = False
        """True once a peek has waited for reads from disk: it then shows the records that are in memory."""
        self._later: PendingResponse | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Answer:
        self._attempt()
        if self._is_complete:
            return self._response()
        self._later = PendingResponse()
        self._later.when_abandoned(self._stop_waiting)
        if not self._is_reading:
            self._wait()
        return self._later

    @property
    def _is_complete(self) -> bool:
        return not self._is_reading and (bool(self._found) or self._is_ended or self._wait_ms <= 0)

    # --- taking

    def _attempt(self) -> None:
        if self._found or self._is_reading:
            return
        leaders = self._find_leaders()
        self._waits_for = [leader for _, leader in leaders]
        if any(leader.is_loading for leader in self._waits_for):
            self._pause(self._loaded())
            return
        left_records, left_bytes = self._asked.max_records, self._max_bytes
        cold: list[ShareLeader] = []
        for key, leader in leaders:
            if left_records <= 0 or left_bytes <= 0:
                break
            found = ReceivedPartition(key.partition)
            try:
                self._take(leader, found, left_records, left_bytes)
            except WouldBlock:
                cold.append(leader)
            except BrokerError as error:
                self._fail(key, error)
            if found.ranges:
                self._found.append(found)
            left_records -= sum(each.last_offset - each.first_offset + 1 for each in found.ranges)
            left_bytes -= sum(map(len, found.records))
        if cold and (self._found or self._is_ended):
            warm_for_others(cold)
        elif cold and self._reading_time.is_left():
            self._pause(warm(cold))

    def _find_leaders(self) -> list[tuple[ShareKey, ShareLeader]]:
        leaders: list[tuple[ShareKey, ShareLeader]] = []
        if self._later is not None:
            self._targets.forget()
            if self._is_refused():
                return leaders
        start = self._token[0] % max(1, len(self._keys))
        for key in self._keys[start:] + self._keys[:start]:
            try:
                leader = self._targets.leader(key)
                if leader.error is not None:
                    raise leader.error
                leader.verify(_VERIFY_SECONDS)
                leaders.append((key, leader))
            except BrokerError as error:
                self._fail(key, error)
        return leaders

    def _is_refused(self) -> bool:
        """True if the right to read the queue was revoked while the request waited: all partitions get the error."""
        try:
            self._request.require(Operation.READ, ResourceType.GROUP, self._asked.group_id)
        except BrokerError as error:
            for key in self._keys:
                self._fail(key, error)
            return True
        return False

    def _take(self, leader: ShareLeader, result: ReceivedPartition, max_records: int, max_bytes: int) -> None:
        """Acquire or peek records of one partition, or check for them, depending on the kind of the request. Raises
        WouldBlock if the records are not in memory.
        """
        if self._asked.kind == ReceiveKind.WAIT:
            self._is_ended |= leader.has_records()
            return
        if self._asked.kind == ReceiveKind.PEEK:
            peeked = leader.peek(max_records, max_bytes)
            if not peeked.is_whole and not self._is_partial:
                self._is_partial = True  # wait only once: the records may not all fit into memory
                raise WouldBlock
            result.ranges, result.records = [ReceivedRange(*each) for each in peeked.ranges], peeked.records
            return
        wanted = ShareFetchLimits(
            self._member,
            max_records,
            max_records,
            AcquireMode.RECORD_LIMIT,
            max_bytes,
            bool(self._found),
            None if self._asked.lock_ms < 0 else self._asked.lock_ms,
            is_one_level=False,
        )
        clock = self._request.context.clock
        fetched = leader.live.acquire(leader, wanted, monotonic_ms(clock), clock.now_ms())
        result.ranges = [ReceivedRange(*each) for each in fetched.acquired]
        result.records = fetched.records

    def _fail(self, key: ShareKey, error: BrokerError) -> None:
        self._found.append(ReceivedPartition(key.partition, error.code, str(error)[:500]))

    async def _loaded(self) -> None:
        await asyncio.gather(*(leader.loaded() for leader in self._waits_for))

    def _pause(self, reading: Coroutine[None, None, None]) -> None:
        """Repeat the attempt when `reading`, which loads share-partitions or reads records, has finished."""
        self._is_reading = True
        asyncio.ensure_future(reading).add_done_callback(self._on_read)

    def _on_read(self, done: asyncio.Future[None]) -> None:
        self._is_reading = False
        if not done.cancelled() and done.exception() is not None:
            self._is_ended = True
        self._continue()

    # --- waiting

    def _wait(self) -> None:
        if self._timer is None:
            seconds = self._request.context.long_polls.wait_seconds(self._wait_ms)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timeout)
        self._request.context.long_polls.parked.add(self.serve)
        for leader in self._waits_for:
            leader.wait(self)

    def serve(self) -> None:
        """Try again, because a partition has records, was loaded or was closed, or because rights have changed."""
        if self._later is None or self._later.is_done:
            self._stop_waiting()
        elif not self._is_reading:
            self._continue()

    def _on_timeout(self) -> None:
        self._wait_ms, self._timer = 0, None
        if not self._is_reading:
            self._continue()

    def _continue(self) -> None:
        if self._later is not None and self._later.is_done:
            return
        for closed in self._waits_for:
            if closed.error is not None and closed.error.code not in _LOADED_AGAIN:
                self._fail(closed.key, closed.error)
        self._attempt()
        if self._later is None:
            return  # within `start`, which looks at the outcome
        if self._is_complete:
            self._stop_waiting()
            self._later.resolve(self._response())
        elif not self._is_reading:
            self._wait()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._request.context.long_polls.parked.discard(self.serve)
        for leader in self._waits_for:
            leader.stop_waiting(self)

    def _response(self) -> Parts:
        group_lock_ms = self._request.context.share.partitions.settings_of(self._asked.group_id)
        lock_ms = self._asked.lock_ms if self._asked.lock_ms > 0 else group_lock_ms.partition.lock_ms
        response = QueueReceiveResponse(token=self._token, lock_ms=lock_ms, partitions=self._found)
        return encode_queue_receive_response(self._request.header.correlation_id, response)


def _check(asked: QueueReceiveRequest) -> None:
    if not asked.group_id:
        raise BrokerError(ErrorCode.invalid_request, "the name of the queue must not be empty")
    if not 0 < len(asked.partitions) <= MAX_PARTITIONS:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"the request has {len(asked.partitions)} partitions; 1 to {MAX_PARTITIONS} are allowed",
        )
    if asked.kind not in set(ReceiveKind):
        raise BrokerError(ErrorCode.invalid_request, f"unknown kind {asked.kind} of receive")
    if asked.max_records < 1:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"the maximum of {asked.max_records} messages is too low; request at least one",
        )
    check_lock_ms(asked.lock_ms)
