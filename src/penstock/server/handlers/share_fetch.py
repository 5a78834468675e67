"""ShareFetch: records for a member of a share group, and acknowledgements of earlier ones (KIP-932).

The response to a request with acknowledgements is sent when these are durable, with the records that are available
then. Other requests wait for records and are served in the order of their arrival; the next request of the session ends
the wait.
"""

from __future__ import annotations

import asyncio

from penstock.clock import monotonic_ms
from penstock.config import FETCH_MAX_BYTES, FETCH_MAX_WAIT_MS
from penstock.errors import BrokerError, ErrorCode, WouldBlock
from penstock.model import ShareKey
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.queues.share_leader import ShareLeader
from penstock.queues.share_reading import ShareFetchLimits
from penstock.queues.states import AcquireMode
from penstock.server.dispatch import Api, Request
from penstock.server.share_acknowledging import (
    Acknowledging,
    ShareTargets,
    end_session,
    key_of,
    lock_ms_of,
    open_session,
)
from penstock.server.share_cold_reads import ReadingTime, warm, warm_for_others
from penstock.server.share_sessions import FINAL_EPOCH, ShareSession
from penstock.wire.share_fetch import ShareRequest, ShareResult, decode_share_fetch, encode_share_fetch


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    asked = decode_share_fetch(frame, position, request.version)
    try:
        session = open_session(request, asked)
        _check(asked)
        operation = ShareFetchOperation(request, asked, session)
    except BrokerError as error:
        return _refuse(request, asked, error)
    return operation.start()


API = Api(78, 1, 2, handle_raw=handle)
_ACQUIRE_MODES = frozenset(AcquireMode)
_LOADED_AGAIN = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.fenced_state_epoch,
)
"""Errors after which a closed share-partition is looked up again; the client does not see them."""


def _check(asked: ShareRequest) -> None:
    limits = (asked.max_wait_ms, asked.min_bytes, asked.max_bytes, asked.max_records)
    if asked.is_renew and any(limits):
        raise BrokerError(
            ErrorCode.invalid_request,
            "a request that renews locks fetches no records: MaxWaitMs, MinBytes, MaxBytes and MaxRecords must be 0",
        )
    if asked.acquire_mode not in _ACQUIRE_MODES:
        raise BrokerError(ErrorCode.invalid_request, f"unknown acquire mode {asked.acquire_mode}")


def _refuse(request: Request, asked: ShareRequest, error: BrokerError) -> Answer:
    header = request.header
    parts = encode_share_fetch(
        header.correlation_id, header.api_version, (), error_code=error.code, error_message=str(error)
    )
    if error.code is not ErrorCode.share_session_limit_reached or asked.max_wait_ms <= 0:
        return parts
    # The client would repeat the request at once, so the error is delayed by the time that it would wait for
    # records.
    later = PendingResponse()
    wait_ms = min(asked.max_wait_ms, request.context.config[FETCH_MAX_WAIT_MS])
    timer = asyncio.get_running_loop().call_later(wait_ms / 1000, later.resolve, parts)
    later.when_abandoned(timer.cancel)
    return later


class ShareFetchOperation:
    """One request: its acknowledgements, and the records that it acquires."""

    __slots__ = (
        "_acknowledging",
        "_asked",
        "_has_data",
        "_is_ended",
        "_is_reading",
        "_later",
        "_max_bytes",
        "_reading_time",
        "_request",
        "_results",
        "_session",
        "_targets",
        "_timer",
        "_wait_ms",
        "_waits_for",
    )

    def __init__(self, request: Request, asked: ShareRequest, session: ShareSession) -> None:
        config = request.context.config
        self._request = request
        self._asked = asked
        self._session = session
        self._targets = ShareTargets(request, session)
        self._acknowledging = Acknowledging(request, asked, session, self._targets)
        self._results: dict[ShareKey, ShareResult] = {}
        self._max_bytes = max(0, min(asked.max_bytes, config[FETCH_MAX_BYTES]))
        self._wait_ms = min(asked.max_wait_ms, config[FETCH_MAX_WAIT_MS])
        self._reading_time = ReadingTime(self._wait_ms)
        self._waits_for: list[ShareLeader] = []
        self._later: PendingResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_data = False
        self._is_ended = False
        self._is_reading = False
        keys = (key_of(session, topic_id, index) for topic_id, index, _ in asked.partitions)
        request.context.share.sessions.add(session, keys)
        session.forget(key_of(session, topic_id, index) for topic_id, index in asked.forgotten)

    def start(self) -> Answer:
        session, asked = self._session, self._asked
        self._acknowledging.run()
        end_session(self._request, asked, session)
        if asked.epoch != FINAL_EPOCH and asked.max_records > 0 and self._max_bytes > 0:
            self._attempt(is_final=self._wait_ms <= 0)
        if self._is_complete:
            return self._response()
        self._later = PendingResponse()
        self._later.when_abandoned(self._stop_waiting)
        if self._acknowledging.is_pending:
            self._acknowledging.when_done(self._on_stored)
        elif not self._is_reading:
            self._wait()
        return self._later

    @property
    def _is_complete(self) -> bool:
        if self._acknowledging.is_pending or self._is_reading:
            return False
        return (
            self._has_data
            or self._is_ended
            or self._wait_ms <= 0
            or bool(self._acknowledging.results)
            or self._asked.epoch == FINAL_EPOCH
            or self._asked.max_records <= 0
            or self._max_bytes <= 0
        )

    # --- acquiring

    def _attempt(self, *, is_final: bool) -> None:
        """Acquire the available records, unless there are results already. `is_final` overrides `min_bytes`."""
        if self._has_data or self._is_reading or not self._session.is_open:
            return
        for closed in self._waits_for:
            if closed.error is not None and closed.error.code not in _LOADED_AGAIN:
                self._fail(closed.key, closed.error)
        if self._has_data:
            return
        leaders = self._find_leaders()
        self._waits_for = [leader for _, leader in leaders]
        if self._asked.min_bytes > 1 and not is_final and not self._has_enough():
            return
        left_records, left_bytes = self._asked.max_records, self._max_bytes
        cold: list[ShareLeader] = []
        for key, leader in leaders:
            if left_records <= 0 or left_bytes <= 0:
                break
            wanted = ShareFetchLimits(
                self._session.member_id,
                left_records,
                self._asked.batch_size,
                AcquireMode(self._asked.acquire_mode),
                left_bytes,
                self._has_data,
            )
            count, size = self._acquire(key, leader, wanted, cold)
            left_records -= count
            left_bytes -= size
        if cold:
            self._read(cold)

    def _find_leaders(self) -> list[tuple[ShareKey, ShareLeader]]:
        if self._later is not None:
            self._targets.forget()
        return self._targets.leaders(self._fail)

    def _has_enough(self) -> bool:
        try:
            total = sum(leader.available_bytes(self._max_bytes) for leader in self._waits_for)
        except (WouldBlock, BrokerError):
            return True
        return total >= self._asked.min_bytes

    def _acquire(
        self, key: ShareKey, leader: ShareLeader, wanted: ShareFetchLimits, cold: list[ShareLeader]
    ) -> tuple[int, int]:
        """Acquire records of one partition; returns their number and size in bytes."""
        try:
            clock = self._request.context.clock
            fetched = leader.live.acquire(leader, wanted, monotonic_ms(clock), clock.now_ms())
        except WouldBlock:
            cold.append(leader)
            return 0, 0
        except BrokerError as error:
            self._fail(key, error)
            return 0, 0
        if not fetched.acquired:
            return 0, 0
        result = self._result(key)
        result.acquired, result.records = fetched.acquired, fetched.records
        self._has_data = True
        count = sum(each.last_offset - each.first_offset + 1 for each in fetched.acquired)
        return count, sum(map(len, fetched.records))

    def _fail(self, key: ShareKey, error: BrokerError) -> None:
        self._targets.fail(self._result(key), error)
        self._has_data = True

    def _result(self, key: ShareKey) -> ShareResult:
        return self._results.setdefault(key, ShareResult(key.topic_id, key.partition))

    def _read(self, cold: list[ShareLeader]) -> None:
        """Read the next records of cold share-partitions into memory. If the attempt has found nothing, it is repeated
        afterwards.
        """
        if self._has_data:
            warm_for_others(cold)
        elif self._reading_time.is_left():
            self._is_reading = True
            asyncio.ensure_future(warm(cold)).add_done_callback(self._on_read)

    def _on_read(self, done: asyncio.Future[None]) -> None:
        self._is_reading = False
        if not done.cancelled() and done.exception() is not None:
            self._is_ended = True
        if self._later is None or not self._later.is_done:
            self._attempt(is_final=self._wait_ms <= 0)
            self._continue()

    # --- waiting

    def _wait(self) -> None:
        if self._timer is None:
            seconds = self._request.context.long_polls.wait_seconds(self._wait_ms)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timeout)
        self._session.waiting = self
        self._request.context.long_polls.parked.add(self.serve)
        for leader in self._waits_for:
            leader.wait(self)

    def serve(self) -> None:
        """Try again, because one of the share-partitions has records, was loaded or was closed, or because rights have
        changed.
        """
        if self._later is None or self._later.is_done:
            self._stop_waiting()
        elif not self._is_reading:
            self._attempt(is_final=False)
            self._continue()

    def _continue(self) -> None:
        """Send the response if it is complete; otherwise continue to wait."""
        if self._is_complete:
            self._finish()
        elif not self._acknowledging.is_pending and not self._is_reading:
            self._wait()

    def _on_stored(self) -> None:
        assert self._later is not None
        if not self._later.is_done:
            self._attempt(is_final=True)
            self._continue()

    def _on_timeout(self) -> None:
        self._wait_ms = 0
        if self._later is not None and not self._later.is_done:
            self._attempt(is_final=True)
            self._continue()

    def end(self) -> None:
        """Respond without records, because the next request of the session has come."""
        if self._is_ended:
            return
        self._is_ended = True
        self._stop_waiting()
        # Deferred, because the next request is being dispatched; this response is sent before the response to
        # it.
        asyncio.get_running_loop().call_soon(self._finish_ended)

    def _finish_ended(self) -> None:
        if self._later is not None and not self._later.is_done and self._is_complete:
            self._finish()

    def _stop_waiting(self) -> None:
        if self._timer is None:
            return  # the request did not wait
        self._timer.cancel()
        self._request.context.long_polls.parked.discard(self.serve)
        if self._session.waiting is self:
            self._session.waiting = None
        for leader in self._waits_for:
            leader.stop_waiting(self)

    def _finish(self) -> None:
        self._stop_waiting()
        assert self._later is not None
        self._later.resolve(self._response())

    def _response(self) -> Parts:
        for key, acknowledged in self._acknowledging.results.items():
            result = self._result(key)
            result.acknowledge_error_code = acknowledged.acknowledge_error_code
            result.acknowledge_error_message = acknowledged.acknowledge_error_message
            if acknowledged.leader_epoch and not result.leader_epoch:
                result.leader_id, result.leader_epoch = acknowledged.leader_id, acknowledged.leader_epoch
        header = self._request.header
        return encode_share_fetch(
            header.correlation_id,
            header.api_version,
            list(self._results.values()),
            lock_ms_of(self._request, self._session),
            self._targets.endpoints,
        )
