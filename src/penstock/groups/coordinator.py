"""The coordinator: which groups this broker answers for, and the shards they live in.

There is a shard for each partition of `__consumer_offsets` that this broker leads. They come and go with leadership;
while one is being loaded its groups get COORDINATOR_LOAD_IN_PROGRESS, never a wrong answer. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import cast

from penstock.clock import Clock
from penstock.cluster.administration import Administration
from penstock.cluster.image import NO_LEADER, ClusterImage, ImageChange
from penstock.cluster.internal_topics import OFFSETS_TOPIC, new_offsets_topic
from penstock.cluster.metadata import ClusterMetadata
from penstock.config import OFFSETS_RETENTION_CHECK_INTERVAL_MS, BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.appender import Appender
from penstock.groups.loading import Loading
from penstock.groups.partitioning import partition_of
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import MAX_STRING_LENGTH, Shard
from penstock.groups.surroundings import Counts
from penstock.groups.timers import Timers
from penstock.model import BrokerId
from penstock.observability.logs import Log
from penstock.replication.replica_manager import ReplicaManager
from penstock.threads import Threads

RETRY_SECONDS = 1.0
"""Between a refused append or an unreadable log and reading the shard again: a disk does not mend in a moment."""
_GROUPS_PER_TURN = 50


class GroupCoordinator:
    def __init__(
        self,
        node_id: BrokerId,
        metadata: ClusterMetadata,
        administration: Administration,
        replicas: ReplicaManager,
        clock: Clock,
        threads: Threads,
        log: Log,
    ) -> None:
        self.settings = GroupSettings(metadata.config, metadata.image.group_overrides())
        self.timers = Timers(clock, self._on_due)
        self.counts = Counts()
        self._node_id = node_id
        self._metadata = metadata
        self._administration = administration
        self._replicas = replicas
        self._clock = clock
        self._threads = threads
        self._log = log
        self._shards: dict[int, Shard] = {}
        self._unloaded: dict[int, None] = {}
        """Ours, but not read yet; the first is read next."""
        self._failed: set[int] = set()
        """Ours, but their log takes nothing until the broker is started again."""
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    @property
    def config(self) -> BrokerConfig:
        return self._metadata.config

    def wall_ms(self) -> int:
        return self._clock.now_ms()

    # --- who answers for a group

    async def find(self, group_id: str) -> BrokerId:
        """The broker that answers for the group."""
        if OFFSETS_TOPIC not in self.image.topics:
            await self._create_topic()
        topic = self.image.topic(OFFSETS_TOPIC)
        if topic is None:
            raise BrokerError(ErrorCode.coordinator_not_available, f"{OFFSETS_TOPIC} could not be made")
        leader = topic.partitions[partition_of(group_id, len(topic.partitions))].leader
        if leader == NO_LEADER:
            raise BrokerError(ErrorCode.coordinator_not_available)
        return leader

    def shard_of(self, group_id: str) -> Shard:
        """The shard the group is in, if it is here and loaded."""
        if len(group_id) > MAX_STRING_LENGTH:
            raise BrokerError(
                ErrorCode.invalid_group_id, f"a group id of more than {MAX_STRING_LENGTH} characters"
            )
        topic = self.image.topic(OFFSETS_TOPIC)
        if topic is None:
            raise BrokerError(ErrorCode.not_coordinator)
        index = partition_of(group_id, len(topic.partitions))
        shard = self._shards.get(index)
        if shard is not None:
            return shard
        if index in self._failed:
            raise BrokerError(
                ErrorCode.coordinator_not_available, f"the log of {OFFSETS_TOPIC}-{index} failed"
            )
        if index not in self._unloaded:
            raise BrokerError(ErrorCode.not_coordinator)
        self._unloaded = {index: None, **self._unloaded}
        raise BrokerError(ErrorCode.coordinator_load_in_progress)

    @property
    def shards(self) -> Sequence[Shard]:
        """The loaded ones."""
        return tuple(self._shards.values())

    @property
    def is_loading(self) -> bool:
        return bool(self._unloaded)

    async def _create_topic(self) -> None:
        try:
            (result,) = await self._administration.create_topics([new_offsets_topic(self.config)])
        except BrokerError as error:
            result = error
        if isinstance(result, BrokerError) and result.code is not ErrorCode.topic_already_exists:
            raise BrokerError(ErrorCode.coordinator_not_available, str(result)) from result
        with suppress(TimeoutError):  # then clients wait for the load, as they know how to
            await asyncio.wait_for(self._idle.wait(), RETRY_SECONDS)

    # --- coming and going

    def start(self) -> None:
        self._update_settings()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._load_shards()), loop.create_task(self._sweep())]
        self._follow_leadership()

    async def stop(self) -> None:
        """Answer everybody who waits; nothing is appended after this returns."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._unloaded.clear()
        for index in tuple(self._shards):
            self._unload(index)
        self.timers.close()

    def on_image(self, change: ImageChange) -> None:
        if self._stopped:
            return
        before, after = change.before, change.after
        if before.broker_configs != after.broker_configs or before.group_configs != after.group_configs:
            self._update_settings()
        if OFFSETS_TOPIC in change.topics:
            self._follow_leadership()
        if change.topics - {OFFSETS_TOPIC}:
            for shard in self.shards:
                shard.on_topics(change)

    def _update_settings(self) -> None:
        self.settings.update(self.config, self.image.group_overrides())

    def _follow_leadership(self) -> None:
        topic = self.image.topic(OFFSETS_TOPIC)
        partitions = () if topic is None else topic.partitions
        ours = {index for index, state in enumerate(partitions) if state.leader == self._node_id}
        for index in (self._shards.keys() | self._unloaded.keys() | self._failed) - ours:
            self._unload(index)
        for index in sorted(ours - self._shards.keys() - self._unloaded.keys() - self._failed):
            self._load(index)

    def _load(self, index: int) -> None:
        self._unloaded[index] = None
        self._idle.clear()
        self._work.set()

    def _unload(self, index: int) -> None:
        self._unloaded.pop(index, None)
        self._failed.discard(index)
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.close(ErrorCode.not_coordinator)

    def lost(self, shard: Shard) -> None:
        index = shard.partition
        if self._shards.get(index) is not shard:
            return
        del self._shards[index]
        if shard.has_failed:
            self._failed.add(index)
            self._log.warning("groups are out of service until the next start", partition=index)
        else:
            self._unloaded[index] = None
            self._log.warning("groups are read again: their log refused a write", partition=index)
            self._load_later()

    # --- loading

    async def _load_shards(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            await self._replicas.settled()
            tried: set[int] = set()
            while (index := self._next_unloaded(tried)) is not None:
                tried.add(index)
                try:
                    await self._load_shard(index)
                except Exception as error:  # noqa: BLE001 - a loop that dies would leave groups unread for good
                    self._log.error_rarely("groups could not be read", error, partition=index)
            if self._unloaded:
                self._load_later()
            else:
                self._idle.set()

    def _next_unloaded(self, tried: set[int]) -> int | None:
        return next((index for index in self._unloaded if index not in tried), None)

    def _load_later(self) -> None:
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._work.set)

    async def _load_shard(self, index: int) -> None:
        started = self._clock.monotonic()
        replica = self._replicas.get(OFFSETS_TOPIC, index)
        if replica.log.failed:
            self._unloaded.pop(index)
            self._failed.add(index)
            return
        loading = Loading(replica, self._threads, self)
        state = await loading.run()
        self.counts.unknown_records += loading.unknown
        if loading.unknown or loading.damaged_parts:
            self._log.warning(
                "records of groups were passed over",
                partition=index,
                records=loading.unknown,
                damaged_parts=loading.damaged_parts,
            )
        if self._unloaded.pop(index, 0) is not None:
            return  # it went away meanwhile
        shard = self._shards[index] = Shard(index, state, Appender(replica, self._clock), self)
        self.counts.load_seconds += self._clock.monotonic() - started
        for place, group_id in enumerate(tuple(shard.groups)):
            if place % _GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
            shard.refresh(group_id)

    # --- time

    def _on_due(self, key: Hashable) -> None:
        # Not the shard itself: one that was closed would live on until its last deadline.
        index, group_id = cast("tuple[int, str | None]", key)
        shard = self._shards.get(index)
        if shard is not None:
            shard.on_due(group_id)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.config[OFFSETS_RETENTION_CHECK_INTERVAL_MS] / 1000)
            for shard in self.shards:
                try:
                    await self._sweep_shard(shard)
                except Exception as error:  # noqa: BLE001 - a loop that dies would end expiry for good
                    self._log.error_rarely("groups could not be swept", error, partition=shard.partition)

    async def _sweep_shard(self, shard: Shard) -> None:
        for place, group_id in enumerate(tuple(shard.groups)):
            if place % _GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
            shard.sweep(group_id)
