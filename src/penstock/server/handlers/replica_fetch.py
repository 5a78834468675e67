"""Fetch of an authenticated follower: returns records up to the log end offset, and advances the high watermark by the
follower's fetch offsets.

Responses contain only partitions with news. A follower's fetch offset counts only after its broker epoch, its leader
epoch and the offset itself were checked against this log.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from penstock.clock import monotonic_ms
from penstock.config import FETCH_MAX_BYTES, REPLICA_FETCH_WAIT_MAX_MS
from penstock.errors import BrokerError, CorruptLog, ErrorCode, StorageError, WouldBlock
from penstock.model import BrokerEpoch, BrokerId, Offset, TopicId
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.records.log_slice import LogSlice
from penstock.replication.replica import Replica
from penstock.replication.throttle import Throttle
from penstock.server.dispatch import Request
from penstock.server.fetch_sessions import INITIAL_EPOCH
from penstock.server.follower_session import FollowedPartition, FollowerSession
from penstock.wire.fetch import FetchRequest, FetchResult, FetchTopicResult, encode_fetch_response

_MAX_SESSION_ID = 2**31 - 1


def handle_replica_fetch(request: Request, fetch: FetchRequest) -> Answer:
    """Serve the request. Raises BrokerError if the whole request is refused."""
    session = _resume(request, fetch)
    session.end_wait()
    for topic in fetch.topics:
        for asked in topic.partitions:
            assert topic.topic_id is not None
            session.name(
                FollowedPartition(
                    (topic.topic_id, asked.partition),
                    asked.fetch_offset,
                    asked.current_leader_epoch,
                    asked.last_fetched_epoch,
                    asked.flushed_offset,
                    asked.max_bytes,
                    asked.log_start_offset,
                    asked.is_damaged,
                )
            )
    for forgotten in fetch.forgotten:
        for index in forgotten.partitions:
            assert forgotten.topic_id is not None
            session.forget((forgotten.topic_id, index))
    return _ReplicaFetch(request, fetch, session).start()


def _resume(request: Request, fetch: FetchRequest) -> FollowerSession:
    connection = request.session
    if not fetch.uses_topic_ids or connection.broker_id is None:
        raise BrokerError(ErrorCode.unsupported_version, "a follower must fetch topics by id, not by name")
    if fetch.session_epoch == INITIAL_EPOCH:
        if connection.follower is not None:
            connection.follower.close()
        session_id = request.context.random.randrange(1, _MAX_SESSION_ID)
        session = FollowerSession(connection.broker_id, BrokerEpoch(fetch.replica_epoch), session_id)
        connection.follower = session
        return session
    known = connection.follower
    if known is None or known.id != fetch.session_id:
        raise BrokerError(ErrorCode.fetch_session_id_not_found)
    if known.epoch != fetch.session_epoch:
        raise BrokerError(ErrorCode.invalid_fetch_session_epoch)
    known.epoch += 1
    return known


def _code_of(error: BaseException) -> ErrorCode:
    if isinstance(error, BrokerError):
        return error.code
    return ErrorCode.corrupt_message if isinstance(error, CorruptLog) else ErrorCode.kafka_storage_error


@dataclass(slots=True)
class _Found:
    """Result of one partition. `cold` is set if its records have to be read in a thread pool."""

    partition: FollowedPartition
    result: FetchResult
    cold: partial[LogSlice] | None = None
    throttle: Throttle | None = None


class _ReplicaFetch:
    """One request: checks the changed partitions, and again after changes, until there is news or the wait is over."""

    def __init__(self, request: Request, fetch: FetchRequest, session: FollowerSession) -> None:
        config = request.context.config
        self._request = request
        self._session = session
        self._max_bytes = max(0, min(fetch.max_bytes, config[FETCH_MAX_BYTES]))
        self._wait_seconds = min(fetch.max_wait_ms, config[REPLICA_FETCH_WAIT_MAX_MS]) / 1000
        self._later: PendingResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room_timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._is_over = False
        """True once the wait is over. Partitions that the follower names from then on belong to its next request."""

    def start(self) -> Answer:
        self._session.release()
        found = self._look()
        if found and not any(each.cold for each in found):
            return self._response(found)
        self._later = PendingResponse()  # no barrier: the follower's next request ends the wait of this one
        self._later.when_abandoned(self._stop_waiting)
        if found:
            self._read_cold(found)
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._wait_seconds, self._on_time_over)
            self._session.wake, self._session.finish = self._on_move, self._on_next_request
            self._await_room()
        return self._later

    def _look(self) -> list[_Found]:
        """Collect news of the changed partitions, up to the size limits. Partitions beyond the limits are checked by
        the next request.
        """
        found: list[_Found] = []
        left_bytes = self._max_bytes
        for followed in tuple(self._session.moved):
            if left_bytes <= 0 and found:
                break
            del self._session.moved[followed]
            try:
                each = self._read(followed, left_bytes, at_least_one=left_bytes == self._max_bytes)
            except BrokerError as error:
                each = _Found(followed, FetchResult(followed.key[1], error_code=error.code))
                self._describe(each)
            if each is not None:
                found.append(each)
                left_bytes -= followed.max_bytes if each.cold else len(each.result.records)
                self._session.forget(followed.key)
        return found

    def _read(self, followed: FollowedPartition, max_bytes: int, *, at_least_one: bool) -> _Found | None:
        replica = self._leader(followed)
        diverging_epoch = replica.diverging_epoch(followed.fetched_epoch, followed.offset)
        if diverging_epoch is None and followed.offset == replica.log.log_end_offset:
            self._count(followed, replica)
            self._session.watch(followed, replica)
            return None
        result = FetchResult(followed.key[1], diverging_epoch=diverging_epoch)
        found = _Found(followed, result)
        if diverging_epoch is not None:
            return found
        limit = min(max_bytes, followed.max_bytes)
        found.throttle = self._request.context.replicas.throttle_of(replica, self._session.broker_id)
        if found.throttle is not None:
            limit, at_least_one = min(limit, found.throttle.allowance()), True
            if not limit and replica.log.log_start_offset <= followed.offset < replica.log.log_end_offset:
                self._hold(followed, replica)
                return None
        read = partial(
            replica.log.read,
            Offset(followed.offset),
            limit,
            below=replica.log.log_end_offset,
            at_least_one=at_least_one,
        )
        try:
            result.records = read(wait=False)
        except WouldBlock:
            found.cold = partial(read, wait=True)
        except StorageError as error:
            raise BrokerError(ErrorCode.corrupt_message, str(error)) from error
        if found.throttle is not None:
            found.throttle.take(len(result.records))
        self._count(followed, replica)
        if found.cold is None and not result.records:
            if followed.offset < replica.log.log_end_offset:
                self._session.moved[followed] = None
            self._session.watch(followed, replica)
            return None
        self._describe(found)
        return found

    def _hold(self, followed: FollowedPartition, replica: Replica) -> None:
        self._count(followed, replica)
        self._session.watch(followed, replica)
        self._session.held[followed] = None

    def _await_room(self) -> None:
        if self._session.held and self._room_timer is None:
            seconds = self._request.context.replicas.leader_throttle.wait_seconds()
            self._room_timer = asyncio.get_running_loop().call_later(seconds, self._on_room)

    def _on_room(self) -> None:
        self._room_timer = None
        self._session.release()
        self._go_on()

    def _leader(self, followed: FollowedPartition) -> Replica:
        known = followed.replica
        if (
            known is not None
            and known.partition.is_leader
            and known.partition.leader_epoch == followed.leader_epoch
        ):
            return known
        topic = self._request.context.image.topic_by_id(followed.key[0])
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_id)
        replica = self._request.context.replicas.get(topic.name, followed.key[1])
        if followed.leader_epoch < 0:
            raise BrokerError(ErrorCode.fenced_leader_epoch)
        replica.check_leader_epoch(followed.leader_epoch)
        if self._session.broker_id not in replica.partition.in_sync.followers:
            # The follower has learned of its new replica before this leader has. With this error it names the
            # partition again; otherwise its offset would never count.
            raise BrokerError(ErrorCode.not_leader_or_follower)
        return replica

    def _count(self, followed: FollowedPartition, replica: Replica) -> None:
        """Record the follower's fetch offset, once for each time that the follower names the partition."""
        if followed.replica is replica:
            return
        followed.replica = replica
        replica.partition.in_sync.on_damage(
            BrokerId(self._session.broker_id), self._session.broker_epoch, is_damaged=followed.is_damaged
        )
        replica.on_follower_fetch(
            BrokerId(self._session.broker_id),
            self._session.broker_epoch,
            Offset(followed.offset),
            Offset(followed.flushed),
            monotonic_ms(self._request.context.clock),
            Offset(followed.log_start),
        )

    def _describe(self, found: _Found) -> None:
        """Set the high watermark and the log start offset in a result."""
        result, followed = found.result, found.partition
        replica = followed.replica or self._find(followed)
        if replica is not None:
            result.high_watermark = followed.told_high_watermark = replica.log.high_watermark
            result.last_stable_offset = result.high_watermark
            result.log_start_offset = followed.told_log_start = replica.log.log_start_offset

    def _find(self, followed: FollowedPartition) -> Replica | None:
        try:
            return self._leader(followed)
        except BrokerError:
            return None

    def _read_cold(self, found: list[_Found]) -> None:
        reading = [each for each in found if each.cold is not None]
        left = len(reading)

        def on_read(each: _Found, done: asyncio.Future[LogSlice]) -> None:
            nonlocal left
            left -= 1
            error = done.exception()
            if error is None:
                each.result.records = done.result()
                if each.throttle is not None:
                    each.throttle.take(len(each.result.records))
                if not each.result.records:  # the first batch did not fit
                    found.remove(each)
                    self._session.put_back(each.partition)
            else:
                each.result.error_code = _code_of(error)
            if left == 0:
                self._resolve(self._response(found))

        for each in reading:
            assert each.cold is not None
            self._request.context.threads.run("read", each.cold).add_done_callback(partial(on_read, each))

    def _on_move(self) -> None:
        """Respond once for all appends of this turn of the loop."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        if self._is_over:
            return
        found = self._look()
        if not found:
            self._await_room()
            return
        self._stop_waiting()
        if any(each.cold for each in found):
            self._read_cold(found)
        else:
            self._resolve(self._response(found))

    def _on_time_over(self) -> None:
        self._stop_waiting()
        self._resolve(self._response([]))

    def _on_next_request(self) -> None:
        """End the wait without partitions, because the follower has sent its next request."""
        self._stop_waiting()
        # Deferred, because the next request is being dispatched; this response is sent before the response to
        # it.
        asyncio.get_running_loop().call_soon(self._resolve, self._response([]))

    def _resolve(self, parts: Parts) -> None:
        assert self._later is not None
        if not self._later.is_done:
            self._later.resolve(parts)

    def _stop_waiting(self) -> None:
        self._is_over = True
        if self._session.finish == self._on_next_request:
            self._session.wake = self._session.finish = None
        for timer in (self._timer, self._room_timer):
            if timer is not None:
                timer.cancel()

    def _response(self, found: list[_Found]) -> Parts:
        self._tell_news(found)
        topics: dict[TopicId, list[FetchResult]] = {}
        for each in found:
            topics.setdefault(each.partition.key[0], []).append(each.result)
        header = self._request.header
        return encode_fetch_response(
            header.correlation_id,
            header.api_version,
            session_id=self._session.id,
            topics=[FetchTopicResult(None, topic_id, results) for topic_id, results in topics.items()],
        )

    def _tell_news(self, found: list[_Found]) -> None:
        """Add partitions of which only the high watermark or the log start offset has changed: to an empty response,
        and otherwise once per wait time.
        """
        now_ms = monotonic_ms(self._request.context.clock)
        if now_ms - self._session.told_ms >= self._wait_seconds * 1000 or not found:
            self._session.told_ms = now_ms
            for followed in self._session.untold():
                news = _Found(followed, FetchResult(followed.key[1]))
                self._describe(news)
                found.append(news)
