"""Fetcher of all replicas on this broker that follow one leader: one connection and one task.

A Fetch request names only partitions whose log end offset or flushed offset has changed since the last request. A
response is applied only to a replica that still follows in the leader epoch of the request. If the leader reports a
diverging epoch, the log is truncated first. An error of one partition delays only that partition; an error of the
connection is retried as long as a replica follows this leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from penstock.cluster.image import RegisteredBroker
from penstock.config import (
    REPLICA_FETCH_MAX_BYTES,
    REPLICA_FETCH_WAIT_MAX_MS,
    REPLICA_SOCKET_TIMEOUT_MS,
    BrokerConfig,
)
from penstock.errors import BrokerError, ErrorCode, PenstockError, StorageError
from penstock.model import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId
from penstock.net.broker_connection import BrokerConnection
from penstock.observability.alarms import AlarmKind
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.replication.authentication import prove
from penstock.replication.context import ReplicationContext
from penstock.replication.leader_session import LeaderSession
from penstock.replication.replica import Replica
from penstock.replication.truncation import truncation_offset
from penstock.unreachable import ConnectionLost
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchResult, FetchTopic, ForgottenTopic
from penstock.wire.fetch_client import FetchResponse

RETRY_SECONDS = 0.1
REFUSED_RETRY_SECONDS = 5.0
"""Pause in seconds after a refused truncation. It is long because the leader's lack of committed records lasts."""
_PARTITION_MAX_BYTES = 1 << 20

Key = tuple[TopicId, int]


class ReplicaOwner(Protocol):
    """The part of `ReplicaManager` that a fetcher uses."""

    config: BrokerConfig

    @property
    def broker_epoch(self) -> BrokerEpoch: ...

    @property
    def secret(self) -> str | None: ...

    def broker(self, broker_id: BrokerId) -> RegisteredBroker | None: ...

    async def truncate(self, replica: Replica, work: Callable[[], None]) -> bool: ...

    def pause_seconds(self, replica: Replica, received_bytes: int) -> float: ...


@dataclass(slots=True, eq=False)
class _Followed:
    replica: Replica
    leader_epoch: LeaderEpoch
    said_in: int = 0
    """Fetch session epoch of the last request that named the partition."""

    @property
    def is_current(self) -> bool:
        partition = self.replica.partition
        return not partition.is_leader and partition.leader_epoch == self.leader_epoch


class Fetcher:
    def __init__(self, leader: BrokerId, owner: ReplicaOwner, context: ReplicationContext) -> None:
        self._leader = leader
        self._owner = owner
        self._context = context
        self._followed: dict[Key, _Followed] = {}
        self._unsaid: dict[Key, None] = {}
        """Partitions to name in the next request."""
        self._said: dict[Key, _Followed] = {}
        """Partitions that were named in a request and wait for records at the leader. If a partition was followed anew
        since a request, its value here is another object, so that the old response does not match.
        """
        self._forgotten: dict[Key, None] = {}
        self._has_work = asyncio.Event()
        self._session: LeaderSession | None = None
        self._work: set[asyncio.Task[None]] = set()
        """Running truncations and flushes; their partitions are named again afterwards."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, replica: Replica) -> None:
        key = (replica.topic_id, replica.name.partition)
        self._followed[key] = _Followed(replica, replica.partition.leader_epoch)
        self._has_work.set()
        self._say(key)

    def unfollow(self, replica: Replica) -> None:
        key = (replica.topic_id, replica.name.partition)
        if self._followed.pop(key, None) is not None:
            self._unsaid.pop(key, None)
            self._said.pop(key, None)
            self._forgotten[key] = None

    def say_again(self, replica: Replica) -> None:
        """Name the partition in the next request. Does nothing during a truncation or flush of the partition, after
        which it is named anyway.
        """
        key = (replica.topic_id, replica.name.partition)
        if key in self._said:
            self._say(key)

    async def stop(self) -> None:
        for task in (self._task, *self._work):
            task.cancel()
        await asyncio.wait([self._task, *self._work])

    def _say(self, key: Key) -> None:
        if key in self._followed:
            self._unsaid[key] = None
            self._forgotten.pop(key, None)
            if self._session is not None:
                self._session.on_news()

    def _say_later(self, key: Key) -> None:
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._say, key)

    # --- the connection

    async def _run(self) -> None:
        while True:
            while not self._followed:
                self._has_work.clear()
                await self._has_work.wait()
            try:
                await self._follow_leader()
            except (OSError, PenstockError, TimeoutError) as error:
                if isinstance(error, ConnectionLost):
                    self._context.on_leader_lost(self._leader)
                self._context.logger.error_rarely("fetch from leader failed", error, leader=self._leader)
            except Exception as error:  # noqa: BLE001 - a loop that dies would end replication for good
                self._context.logger.error("fetcher failed", error, leader=self._leader)
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow_leader(self) -> None:
        broker, config = self._owner.broker(self._leader), self._owner.config
        if broker is None:
            raise ConnectionError("the leader is not registered")
        timeout_seconds = config[REPLICA_SOCKET_TIMEOUT_MS] / 1000
        me = self._context.node_id
        async with asyncio.timeout(timeout_seconds):
            client = await BrokerConnection.connect(
                self._context.network, broker.host, broker.port, f"penstock-broker-{me}"
            )
        try:
            async with asyncio.timeout(timeout_seconds):
                await prove(client, self._owner.secret, me, self._leader, self._context.random)
            self._unsaid = dict.fromkeys(self._followed)
            self._said.clear()
            self._forgotten.clear()
            self._session = LeaderSession(client, self)
            await self._session.run(timeout_seconds)
        finally:
            self._session = None
            client.close()

    # --- requests of the session

    @property
    def has_news(self) -> bool:
        return bool(self._unsaid or self._forgotten)

    @property
    def is_waiting(self) -> bool:
        return bool(self._said)

    def request(self, session_id: int, session_epoch: int) -> FetchRequest:
        config = self._owner.config
        topics: dict[TopicId, FetchTopic] = {}
        unsaid, self._unsaid = self._unsaid, {}
        for topic_id, index in unsaid:
            key = (topic_id, index)
            followed = self._said[key] = self._followed[key]
            followed.said_in = session_epoch
            replica, log = followed.replica, followed.replica.log
            if replica.flushes_as_follower and not log.failed:
                # Records from an earlier leader, or from the time when this broker led, may not be durable yet.
                replica.when_flushed(partial(self._on_flushed, key, replica))
            partition = FetchPartition(
                index,
                log.log_end_offset,
                _PARTITION_MAX_BYTES,
                current_leader_epoch=followed.leader_epoch,
                last_fetched_epoch=log.last_epoch,
                log_start_offset=log.log_start_offset,
                flushed_offset=log.flushed_offset,
                is_damaged=bool(log.damage),
            )
            if not log.damage:
                replica.may_refetch = False
            topics.setdefault(topic_id, FetchTopic(None, topic_id, [])).partitions.append(partition)
        forgotten, self._forgotten = self._forgotten, {}
        return FetchRequest(
            max_wait_ms=config[REPLICA_FETCH_WAIT_MAX_MS],
            min_bytes=1,
            topics=list(topics.values()),
            forgotten=[ForgottenTopic(None, topic_id, [index]) for topic_id, index in forgotten],
            replica_id=self._context.node_id,
            replica_epoch=self._owner.broker_epoch,
            max_bytes=config[REPLICA_FETCH_MAX_BYTES],
            session_id=session_id,
            session_epoch=session_epoch,
            uses_topic_ids=True,
        )

    def take(self, response: FetchResponse, session_epoch: int) -> None:
        for topic in response.topics:
            assert topic.topic_id is not None
            for result in topic.partitions:
                key = (topic.topic_id, result.partition)
                followed = self._followed.get(key)
                if followed is None or followed is not self._said.get(key) or not followed.is_current:
                    continue
                if session_epoch < followed.said_in:
                    continue  # the request was sent before the partition was named again
                work = self._take_one(key, followed.replica, result)
                if work is not None:
                    finishing = self._finish(key, followed.replica, work)
                    task = asyncio.get_running_loop().create_task(finishing)
                    self._work.add(task)
                    task.add_done_callback(self._work.discard)

    async def _finish(self, key: Key, replica: Replica, work: Awaitable[None]) -> None:
        try:
            await work
            self._say(key)
        except (BrokerError, StorageError, OSError) as error:
            self._context.logger.error_rarely("replica fetch failed", error, partition=replica.name)
            self._say_later(key)

    def _take_one(self, key: Key, replica: Replica, result: FetchResult) -> Awaitable[None] | None:
        """Apply a response. Return an awaitable for longer work, such as a truncation; after it the caller names the
        partition again.
        """
        if result.records or result.error_code or result.diverging_epoch is not None:
            del self._said[key]  # the leader sends nothing for the partition until it is named again
        if result.error_code == ErrorCode.offset_out_of_range:
            return self._restart(replica, Offset(result.log_start_offset))
        if result.error_code:
            # One of the two brokers has older metadata; a request succeeds once both have the same.
            self._say_later(key)
            return None
        if result.diverging_epoch is not None:
            epoch, end_offset = result.diverging_epoch
            return self._truncate(replica, LeaderEpoch(epoch), Offset(end_offset))
        first = _first_offset(result)
        if first is not None and first < replica.log.log_end_offset == replica.log.log_start_offset:
            return self._begin_within_a_batch(replica, first, result)
        log_start = replica.log.log_start_offset
        try:
            self._apply(replica, result)
        except BrokerError as error:
            if error.code is ErrorCode.corrupt_message:
                detail = f"broker {self._leader} sent a batch that cannot be appended: {error}"
                self._context.alarms.set(AlarmKind.CORRUPT_FETCH, replica.name, detail)
            self._context.logger.error_rarely("replica fetch failed", error, partition=replica.name)
            self._say_later(key)
            return None
        if result.records:
            pause_seconds = self._owner.pause_seconds(replica, len(result.records))
            if pause_seconds:
                return self._rest(replica, pause_seconds)
            on_flushed = partial(self._on_flushed, key, replica)
            if not replica.flushes_as_follower or replica.when_flushed(on_flushed):
                self._say(key)
        elif replica.log.log_start_offset != log_start:
            self._say(key)  # a DeleteRecords request at the leader waits for the new log start offset
        return None

    def _apply(self, replica: Replica, result: FetchResult) -> None:
        if result.records:
            assert isinstance(result.records, memoryview)
            replica.append_as_follower(result.records, self._context.clock.now_ms())
            self._context.alarms.clear(AlarmKind.CORRUPT_FETCH, replica.name)
        replica.on_leader_offsets(Offset(result.high_watermark), Offset(result.log_start_offset))

    async def _begin_within_a_batch(self, replica: Replica, first: Offset, result: FetchResult) -> None:
        """Start an empty log at `first`, the base offset of the batch that contains the leader's log start offset.

        After DeleteRecords the log start offset may be within a batch. The follower stores the whole batch and gets the
        log start offset of the leader.
        """
        epoch = replica.partition.leader_epoch
        await self._run_truncation(replica, partial(self._context.logs.restart, replica.log, first))
        if replica.partition.leader_epoch == epoch:
            self._apply(replica, result)
            if replica.flushes_as_follower:
                await replica.flushed()

    def _on_flushed(self, key: Key, replica: Replica, error: BrokerError | None) -> None:
        if error is None:
            self._say(key)
        else:
            self._context.logger.error_rarely("replica fetch failed", error, partition=replica.name)
            self._say_later(key)

    async def _rest(self, replica: Replica, seconds: float) -> None:
        if replica.flushes_as_follower:
            await replica.flushed()
        await asyncio.sleep(seconds)

    async def _truncate(self, replica: Replica, epoch: LeaderEpoch, end_offset: Offset) -> None:
        log = replica.log
        offset = truncation_offset(
            log.leader_epochs, log.log_start_offset, log.log_end_offset, epoch, end_offset
        )
        if offset is None:
            raise StorageError(
                f"the leader of {replica.name} reports an impossible end offset {end_offset} of epoch {epoch}"
            )
        if replica.refuses_truncation(offset):
            await self._refuse_truncation(replica, offset)
            return
        self._context.alarms.clear(AlarmKind.TRUNCATION_REFUSED, replica.name)
        self._context.logger.info(
            "replica truncated",
            partition=replica.name,
            offset=offset,
            log_end=log.log_end_offset,
            high_watermark=log.high_watermark,
        )
        await self._run_truncation(replica, partial(self._context.logs.truncate, log, offset))

    async def _refuse_truncation(self, replica: Replica, offset: Offset) -> None:
        """Keep committed records that the leader lacks: set an alarm, and fetch again after `REFUSED_RETRY_SECONDS`."""
        log = replica.log
        detail = (
            f"leader {self._leader} in epoch {replica.partition.leader_epoch} lacks records from offset {offset} on; "
            f"records up to the high watermark {replica.log.high_watermark} are committed and kept here "
            f"(log end {log.log_end_offset})"
        )
        self._context.alarms.set(AlarmKind.TRUNCATION_REFUSED, replica.name, detail)
        await asyncio.sleep(REFUSED_RETRY_SECONDS)

    async def _restart(self, replica: Replica, log_start: Offset) -> None:
        """Drop all records and start at the leader's log start offset, because this log ends below it."""
        log = replica.log
        if log_start < 0 or (log.log_start_offset < log.log_end_offset and log.log_end_offset >= log_start):
            raise StorageError(
                f"the log end {log.log_end_offset} of {replica.name} is out of range at its leader"
            )
        await self._run_truncation(replica, partial(self._context.logs.restart, log, log_start))

    async def _run_truncation(self, replica: Replica, truncate: Callable[[int], None]) -> None:
        now_ms = self._context.clock.now_ms()
        if not await self._owner.truncate(replica, lambda: truncate(now_ms)):
            raise StorageError(f"{replica.name} cannot be truncated while another job is changing its files")


def _first_offset(result: FetchResult) -> Offset | None:
    """Base offset of the first batch; None without records."""
    if len(result.records) < HEADER_SIZE:
        return None
    assert isinstance(result.records, memoryview)
    return Offset(read_header(result.records).base_offset)
