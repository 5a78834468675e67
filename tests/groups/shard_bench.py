"""A shard on a real log, with a clock and a disk that the test controls."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID

from penstock.cluster.image import ClusterImage, PartitionState, TopicImage
from penstock.config import BrokerConfig, Durability
from penstock.groups.context import GroupCounts, ShareStates
from penstock.groups.group import JoinRequest, SyncRequest
from penstock.groups.loading import Loading
from penstock.groups.offsets import CommittedOffset, OffsetCommit
from penstock.groups.record_codec import encode_record
from penstock.groups.records import OffsetKey
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.groups.shard_state import ShardState
from penstock.model import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.iteration import read_batches
from penstock.replication.flusher import Flusher
from penstock.replication.in_sync import InSync
from penstock.replication.projected_log import ScanSlots
from penstock.replication.refused_batches import RefusedBatches
from penstock.replication.replica import Replica, ReplicaContext
from penstock.state_log.appender import Appender
from penstock.state_log.shard import Shard
from penstock.state_log.timers import Timers
from penstock.storage.disk import RealDisk
from penstock.storage.file_cache import FileCache
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import StorageContext
from penstock.threads import Pool
from support.group_commits import committing
from support.manual_clock import START_MS, ManualClock

T = TypeVar("T")

ME = BrokerId(1)
ORDERS = TopicId(UUID(int=1))
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
SUBSCRIPTION = b"\0\0\0\0\0\x01\0\x06orders\xff\xff\xff\xff"


class HeldThreads:
    """Threads whose flushes wait until the test releases them; other work runs at once."""

    def __init__(self) -> None:
        self._held: list[tuple[Callable[[], object], asyncio.Future[object]]] = []

    def run(self, pool: Pool, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if pool == "flush":
            self._held.append((work, future))  # type: ignore[arg-type]
        else:
            future.set_result(work())
        return future

    def close(self) -> None: ...

    async def flush(self) -> None:
        """Let all appended records reach the disk."""
        await turns()
        while self._held:
            work, future = self._held.pop(0)
            try:
                future.set_result(work())
            except OSError as error:
                future.set_exception(error)
            await turns()


class Disk(RealDisk):
    """A disk whose syncs can be made to fail."""

    fails = False

    def sync_all(self) -> bool:
        if self.fails:
            raise OSError(errno.EIO, "input/output error")
        return True


class Bench:
    """A shard with its context."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.clock = ManualClock()
        self.threads = HeldThreads()
        self.disk = Disk(str(directory))
        self.config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
        self.settings = GroupSettings(self.config, {})
        self.timers = Timers(self.clock, lambda key: None)
        self.counts = GroupCounts()
        self.share_states: ShareStates = cast(ShareStates, None)
        self.image = ClusterImage("c").with_topics([topic("orders", ORDERS)])
        self.lost_shards: list[Shard[Any]] = []
        self.storage = StorageContext(self.disk, FileCache(self.disk, 100))
        self.replica = self._make_replica()
        self.shard = self._make_shard(ShardState(self))

    def wall_ms(self) -> int:
        return self.clock.now_ms()

    async def confirm_image(self) -> None:
        """The image has no delay: every recorded change is applied."""

    def lost(self, shard: Shard[Any]) -> None:
        self.lost_shards.append(shard)

    def _make_replica(self) -> Replica:
        name = TopicPartition("__consumer_offsets", 0)
        log = Log.create(self.storage, "logs/offsets-0", name, ORDERS, LogConfig())
        flusher = Flusher(self.disk, self.threads, self.clock, lambda seconds: None)
        slots, refused = ScanSlots(self.threads, self.clock), RefusedBatches(self.clock)
        context = ReplicaContext(flusher, self.threads, refused, {}, {}, lambda: None, slots)
        replica = Replica(log, Durability.FSYNC, context)
        alone = InSync(ME, (ME,), frozenset((ME,)), 0, Offset(0), {}, START_MS)
        replica.become_leader(LeaderEpoch(0), alone)
        return replica

    def _make_shard(self, state: ShardState) -> GroupShard:
        return GroupShard(0, state, Appender(self.replica, self.clock, encode_record), self)

    async def reload(self) -> GroupShard:
        self.shard = self._make_shard(await Loading(self.replica, self.threads, self).run())
        return self.shard

    @property
    def batches(self) -> list[int]:
        """Number of records in each batch of the log."""
        log = self.replica.log
        content = log.read(Offset(0), 10**6, below=log.log_end_offset, at_least_one=True, wait=True).read()
        return [header.record_count for header, _ in read_batches(memoryview(content))]

    async def flushed(self, work: Awaitable[T]) -> T:
        """Return the result of the work, with flushes until it is done."""
        task = asyncio.ensure_future(work)
        await self.threads.flush()
        return await task

    async def commit(self, offset: int, group: str = "g", partition: TopicPartition = P0) -> None:
        await committing(self.shard, outside(offset, partition, at_ms=self.wall_ms(), group=group))

    async def join_group(self, group: str = "g", member_id: str = "m1") -> int:
        """Join as the only member of a group, and sync; returns the generation."""
        self.config = BrokerConfig({**self.config.static, "group.initial.rebalance.delay.ms": "0"})
        self.settings.update(self.config, {})
        first = asyncio.ensure_future(self.shard.join(group, join_request(new_member_id=member_id)))
        await turns()
        self.shard.on_due(group)
        joined = await self.flushed(first)
        sync = SyncRequest(member_id, None, joined.generation, None, None, {member_id: b"mine"})
        await self.flushed(self.shard.sync(group, sync))
        return joined.generation


def topic(name: str, topic_id: TopicId, partitions: int = 2) -> TopicImage:
    state = PartitionState(ME, LeaderEpoch(0), (ME,), (ME,), 0)
    return TopicImage(name, topic_id, (state,) * partitions, {"retention.ms": "1000"}, 0)


def outside(
    offset: int,
    partition: TopicPartition = P0,
    topic_id: TopicId = ORDERS,
    at_ms: int = 1,
    group: str = "g",
) -> OffsetCommit:
    """A commit by a client outside of any group."""
    key = OffsetKey(group, partition.topic, partition.partition)
    return OffsetCommit(group, "", None, -1, {key: CommittedOffset(offset, -1, "", topic_id, at_ms)})


def join_request(member_id: str = "", new_member_id: str = "m1", **changes: Any) -> JoinRequest:
    fields = {
        "member_id": member_id,
        "instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "protocol_type": "consumer",
        "protocols": (("range", SUBSCRIPTION),),
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "new_member_id": new_member_id,
        "requires_known_member_id": False,
        "supports_skipping_assignment": True,
    }
    return JoinRequest(**{**fields, **changes})


async def turns() -> None:
    """Run the loop until all scheduled callbacks have run."""
    for _ in range(20):
        await asyncio.sleep(0)
