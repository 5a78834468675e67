"""Fetch: sends whole batches unchanged from the segment files, at once or after a long poll.

No response has records at or above the high watermark; with read_committed, none at or above the last stable offset.
Settings of the broker bound the sizes and waits of clients. `ProjectedFetchOperation` serves topics with projections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from penstock.clock import monotonic_ms
from penstock.cluster.image import ClusterImage
from penstock.config import FETCH_MAX_BYTES, FETCH_MAX_WAIT_MS
from penstock.errors import BrokerError, CorruptLog, CutOff, ErrorCode, WouldBlock
from penstock.model import Offset, TopicId
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.records.log_slice import EMPTY_SLICE
from penstock.replication.replica import Replica
from penstock.server.cold_read import ColdRead, Found
from penstock.server.cold_read import LogRead as LogRead
from penstock.server.dispatch import Api, Request
from penstock.server.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, FetchTarget
from penstock.server.handlers.replica_fetch import handle_replica_fetch
from penstock.server.read_replicas import are_followers_read, check_reach, preferred_read_replica
from penstock.server.security import Operation, ResourceType
from penstock.wire.fetch import (
    RACK_FROM,
    FetchRequest,
    FetchResult,
    FetchTopicResult,
    decode_fetch_request,
    encode_fetch_response,
)

FIRST_RECORD_BATCH_VERSION = 4
FIRST_SESSION_VERSION = 7
READ_COMMITTED = 1
CONSUMER = -1


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    fetch = decode_fetch_request(frame, position, request.header.api_version)
    try:
        _check_replica(request, fetch)
        if fetch.replica_id != CONSUMER:
            return handle_replica_fetch(request, fetch)
        _check_version(request)
        request.session.is_consumer = True
        session = _open_session(request, fetch)
        targets = list(session.targets.values()) if session else _targets(fetch)
        operation = _operation_type(request, targets)(request, fetch, session, targets)
    except BrokerError as error:
        return _refuse(request, fetch, error.code)
    return operation.start()


API = Api(1, 0, 18, handle_raw=handle)


def _operation_type(request: Request, targets: Sequence[FetchTarget]) -> type[FetchOperation]:
    image, is_broker = request.context.metadata.image, request.session.broker_id is not None
    # Another broker that repairs its replica reads all records.
    if not image.projected or is_broker or not any(reads_projection(image, target) for target in targets):
        return FetchOperation
    # Imported late, so that a broker without projections does not load the module.
    from penstock.server.projected_fetch import ProjectedFetchOperation

    return ProjectedFetchOperation


def reads_projection(image: ClusterImage, target: FetchTarget) -> bool:
    name = target.topic
    if name is None and target.topic_id is not None:
        name = image.topic_names.get(target.topic_id)
    return name in image.projected


def _check_version(request: Request) -> None:
    if request.header.api_version < FIRST_RECORD_BATCH_VERSION:
        raise BrokerError(ErrorCode.unsupported_version)


def _open_session(request: Request, fetch: FetchRequest) -> FetchSession | None:
    sessions, owner = request.context.fetch_sessions, request.session
    if request.header.api_version < FIRST_SESSION_VERSION:
        return None
    if fetch.session_epoch == FINAL_EPOCH:
        sessions.close(owner)
        return None
    now_ms, by_id = monotonic_ms(request.context.clock), fetch.uses_topic_ids
    if fetch.session_epoch == INITIAL_EPOCH:
        return sessions.open(owner, _targets(fetch), by_id, now_ms)
    session = sessions.resume(owner, fetch.session_id, fetch.session_epoch, by_id, now_ms)
    forgotten = [
        (topic.name, topic.topic_id, index) for topic in fetch.forgotten for index in topic.partitions
    ]
    sessions.update(session, _targets(fetch), forgotten)
    return session


def _check_replica(request: Request, fetch: FetchRequest) -> None:
    """Refuse a Fetch with a broker's id from any other client: it would advance the high watermark (CVE-2018-1288)."""
    if fetch.replica_id != CONSUMER and fetch.replica_id != request.session.broker_id:
        raise BrokerError(ErrorCode.cluster_authorization_failed, "only a broker may fetch as a replica")


class FetchOperation:
    """One Fetch request: reads all partitions, again after each change of one of them, until there are enough bytes."""

    __slots__ = (
        "_cold_reads",
        "_cold_results",
        "_fetch",
        "_has_moved",
        "_is_due",
        "_later",
        "_max_bytes",
        "_reads_followers",
        "_replicas",
        "_request",
        "_results",
        "_session",
        "_targets",
        "_timer",
        "_wait_ms",
    )

    def __init__(
        self,
        request: Request,
        fetch: FetchRequest,
        session: FetchSession | None,
        targets: list[FetchTarget],
    ) -> None:
        self._request = request
        self._fetch = fetch
        self._session = session
        self._targets = targets
        config = request.context.config
        self._max_bytes = max(0, min(fetch.max_bytes, config[FETCH_MAX_BYTES]))
        self._wait_ms = min(fetch.max_wait_ms, config[FETCH_MAX_WAIT_MS])
        self._reads_followers = request.header.api_version >= RACK_FROM and are_followers_read(config)
        self._replicas: dict[Replica, None] = {}
        self._cold_reads: dict[int, ColdRead] = {}
        self._cold_results: dict[int, Found | BrokerError] = {}
        self._later: PendingResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._results: list[FetchResult] = []
        """Results of the last attempt, which are sent after the timeout if no partition has changed since."""
        self._has_moved = False
        self._is_due = False

    def start(self) -> Answer:
        results = self._attempt(final=self._wait_ms <= 0)
        if results is not None:
            return self._response(results)
        # One waiting fetch per connection, as in Kafka: every append has to check each of them, and the next
        # request of a session builds on the changes of this one.
        self._later = PendingResponse(barrier=True)
        self._later.when_abandoned(self._stop_waiting)
        if self._cold_reads:
            self._start_cold_reads()
        else:
            self._wait()
        return self._later

    def _attempt(self, *, final: bool) -> list[FetchResult] | None:
        """Build the results; None if the request has to wait for the disk or for more records."""
        results = []
        total_bytes, urgent = 0, final or not self._targets
        for index, target in enumerate(self._targets):
            try:
                result = self._read(
                    index, target, self._max_bytes - total_bytes, at_least_one=total_bytes == 0
                )
            except BrokerError as error:
                result = FetchResult(target.partition, error_code=error.code)
                urgent = urgent or not target.is_removed(self._request.context.image)
            results.append(result)
            total_bytes += len(result.records)
            urgent = urgent or result.diverging_epoch is not None or result.preferred_read_replica >= 0
        self._results = results
        if self._cold_reads or not (urgent or total_bytes >= self._fetch.min_bytes):
            return None
        return results

    def _read(self, index: int, target: FetchTarget, max_bytes: int, *, at_least_one: bool) -> FetchResult:
        replica = self._replica(target)
        high_watermark, stable = replica.log.high_watermark, replica.log.last_stable_offset
        is_committed = self._fetch.isolation_level == READ_COMMITTED
        result = FetchResult(
            target.partition,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=replica.log.log_start_offset,
            aborted_transactions=() if is_committed else None,
        )
        if self._reads_followers:
            context, rack = self._request.context, self._fetch.rack_id
            preferred = preferred_read_replica(context, replica, rack, target.offset)
            if preferred is not None:
                result.preferred_read_replica = preferred
                return result
        result.diverging_epoch = replica.diverging_epoch(target.last_fetched_epoch, target.offset)
        limit = max(0, min(target.max_bytes, max_bytes))
        if result.diverging_epoch is None and (limit or at_least_one):
            below = stable if is_committed else high_watermark
            result.records, result.aborted_transactions = self._find(
                index, LogRead(replica, Offset(target.offset), limit, below, at_least_one, is_committed)
            )
        return result

    def _find(self, index: int, read: LogRead) -> Found:
        outcome = self._cold_results.get(index)
        if isinstance(outcome, BrokerError):
            raise outcome
        if outcome is not None:
            return outcome
        try:
            return read(wait=False)
        except WouldBlock:
            self._cold_reads[index] = read
            return EMPTY_SLICE, ()

    def _topic(self, target: FetchTarget) -> str:
        """Name of the topic. Raises BrokerError if its id is unknown or the client may not read it."""
        topic = target.topic
        if topic is None:
            assert target.topic_id is not None
            known = self._request.context.image.topic_by_id(target.topic_id)
            if known is None:
                raise BrokerError(ErrorCode.unknown_topic_id)
            topic = known.name
        self._request.require(Operation.READ, ResourceType.TOPIC, topic)
        return topic

    def _replica(self, target: FetchTarget) -> Replica:
        context, topic = self._request.context, self._topic(target)
        if self._request.session.broker_id is not None:
            find = context.replicas.get_any  # another broker that repairs its replica
        else:
            find = context.replicas.get_in_sync if self._reads_followers else context.replicas.get
        replica = find(topic, target.partition)
        replica.check_leader_epoch(target.current_leader_epoch)
        if self._reads_followers:
            check_reach(replica, target.offset)
        self._replicas[replica] = None
        return replica

    def _start_cold_reads(self) -> None:
        """Look up positions in the log in a thread pool, which may wait for the disk. Records are read when they are
        sent.
        """
        threads = self._request.context.threads
        for index, read in self._cold_reads.items():
            read.start(threads).add_done_callback(partial(self._on_cold_read, index))

    def _on_cold_read(self, index: int, done: asyncio.Future[Any]) -> None:
        error = done.exception()
        if error is not None and not isinstance(error, BrokerError):
            codes = (ErrorCode.kafka_storage_error, ErrorCode.corrupt_message)
            error = BrokerError(codes[isinstance(error, CorruptLog)], str(error))
        self._cold_results[index] = error or done.result()
        del self._cold_reads[index]
        if not self._cold_reads:
            self._retry(final=True)

    def _wait(self) -> None:
        if self._timer is None:
            seconds = self._request.context.long_polls.wait_seconds(self._wait_ms)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timeout)
        self._request.context.long_polls.parked.add(self._on_move)
        self._watch()

    def _watch(self) -> None:
        for replica in self._replicas:
            replica.data_waiters.add(self._on_move)

    def _unwatch(self) -> None:
        for replica in self._replicas:
            replica.data_waiters.discard(self._on_move)

    def _on_move(self) -> None:
        self._has_moved = True
        self._become_due()

    def _on_timeout(self) -> None:
        self._wait_ms = 0
        self._become_due()

    def _become_due(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._request.context.long_polls.serve(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        assert self._later is not None
        if self._later.is_done or self._cold_reads:
            return
        if self._has_moved:
            self._has_moved = False
            self._retry(final=self._wait_ms <= 0)
        elif any(replica.is_in_doubt for replica in self._replicas):
            self._stop_waiting()
            self._later.fail(CutOff())
        else:
            self._finish(self._results)

    def _retry(self, *, final: bool) -> None:
        results = self._attempt(final=final)
        if results is not None:
            self._finish(results)
        elif self._cold_reads:
            self._start_cold_reads()
        else:
            self._wait()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._request.context.long_polls.parked.discard(self._on_move)
        self._unwatch()

    def _finish(self, results: list[FetchResult]) -> None:
        self._stop_waiting()
        assert self._later is not None
        self._later.resolve(self._response(results))

    def _response(self, results: list[FetchResult]) -> Parts:
        session = self._session
        told = list(zip(self._targets, results, strict=True))
        if session is not None:
            if self._fetch.session_epoch != INITIAL_EPOCH:
                told = [(target, result) for target, result in told if _has_news(target, result)]
            for target, result in told:
                target.told_high_watermark = result.high_watermark
                target.told_log_start_offset = result.log_start_offset
                if result.records:
                    session.moved_data(target)
        return _encode(self._request, ErrorCode.none, session.id if session else 0, told)


def _has_news(target: FetchTarget, result: FetchResult) -> bool:
    """True if an incremental response has to include the partition."""
    return (
        len(result.records) > 0
        or bool(result.error_code)
        or result.diverging_epoch is not None
        or result.preferred_read_replica >= 0
        or result.high_watermark != target.told_high_watermark
        or result.log_start_offset != target.told_log_start_offset
    )


def _targets(fetch: FetchRequest) -> list[FetchTarget]:
    """Requested partitions. If a partition is named twice, the last entry counts."""
    targets = {}
    for topic in fetch.topics:
        for asked in topic.partitions:
            target = FetchTarget(
                topic.name,
                topic.topic_id,
                asked.partition,
                asked.fetch_offset,
                asked.max_bytes,
                asked.current_leader_epoch,
                asked.last_fetched_epoch,
            )
            targets[target.key] = target
    return list(targets.values())


def _refuse(request: Request, fetch: FetchRequest, code: ErrorCode) -> Parts:
    """Response with one error for the whole request. Versions without such an error get it in each partition."""
    if request.header.api_version >= FIRST_SESSION_VERSION:
        return _encode(request, code, 0, [])
    refused = [(target, FetchResult(target.partition, error_code=code)) for target in _targets(fetch)]
    return _encode(request, ErrorCode.none, 0, refused)


def _encode(
    request: Request, error_code: ErrorCode, session_id: int, told: list[tuple[FetchTarget, FetchResult]]
) -> Parts:
    topics: dict[tuple[str | None, TopicId | None], list[FetchResult]] = {}
    for target, result in told:
        topics.setdefault((target.topic, target.topic_id), []).append(result)
    header = request.header
    return encode_fetch_response(
        header.correlation_id,
        header.api_version,
        error_code=error_code,
        session_id=session_id,
        topics=[FetchTopicResult(name, topic_id, results) for (name, topic_id), results in topics.items()],
    )
