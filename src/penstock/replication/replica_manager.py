"""The replicas this broker holds, kept in step with the cluster image.

Topics and partitions come and go only through `apply`; nothing is ever deleted because the image is merely empty:
a log whose topic the image does not know, and did not know a moment ago, is an orphan and stays. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from penstock.clock import Clock
from penstock.cluster.image import ClusterImage, ImageChange, Topic
from penstock.config import DURABILITY, MIN_INSYNC_REPLICAS, BrokerConfig, TopicConfig
from penstock.errors import BrokerError, ErrorCode, StorageError
from penstock.model import BrokerId, TopicPartition
from penstock.observability.logs import Log
from penstock.replication.flusher import Flusher
from penstock.replication.in_sync import InSync
from penstock.replication.partition import Partition
from penstock.replication.replica import Replica
from penstock.storage.log_config import LogConfig
from penstock.storage.log_manager import LogManager
from penstock.threads import Threads

RETRY_SECONDS = 1.0


class ReplicaManager:
    def __init__(
        self,
        node_id: BrokerId,
        config: BrokerConfig,
        logs: LogManager,
        flusher: Flusher,
        threads: Threads,
        clock: Clock,
        log: Log,
    ) -> None:
        self._node_id = node_id
        self._log = log
        self._image: ClusterImage | None = None
        self._config = config
        self._logs = logs
        self._flusher = flusher
        self._threads = threads
        self._clock = clock
        self._replicas: dict[tuple[str, int], Replica] = {}
        self.changed: dict[Replica, None] = {}
        """Those appended to since they were last checkpointed."""
        self._following: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[Replica]:
        return iter(tuple(self._replicas.values()))

    def get(self, topic: str, partition: int) -> Replica:
        replica = self._replicas.get((topic, partition))
        if replica is None:
            known = self._image is not None and self._image.partition(TopicPartition(topic, partition))
            raise BrokerError(
                ErrorCode.not_leader_or_follower if known else ErrorCode.unknown_topic_or_partition,
                f"{topic}-{partition} is not on this broker",
            )
        return replica

    async def load(self, image: ClusterImage) -> None:
        """Take up everything the image gives this broker, at start."""
        self._image = image
        for topic in image.topics.values():
            await self._follow_topic(None, topic)

    def follow(self, change: ImageChange, config: BrokerConfig) -> None:
        """Bring the replicas in step with a change of the image, after all earlier ones."""
        self._following = asyncio.get_running_loop().create_task(self._apply(self._following, change, config))

    async def settled(self) -> None:
        """Wait until every change so far has been followed: new partitions take writes, old ones are gone."""
        if self._following is not None:
            await asyncio.wait([self._following])

    async def _apply(
        self, earlier: asyncio.Task[None] | None, change: ImageChange, config: BrokerConfig
    ) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        names = change.topics if config is self._config else change.topics | change.after.topics.keys()
        self._config = config
        self._image = change.after
        for name in sorted(names):
            await self._follow_topic(change.before.topic(name), change.after.topic(name))

    async def _follow_topic(self, before: Topic | None, after: Topic | None) -> None:
        """A disk that refuses holds up this topic only, and is tried again: it may have space later."""
        try:
            if before is not None and (after is None or after.id != before.id):
                await self._remove_topic(before)
        except OSError as error:
            self._log.error("topic could not be removed", error, topic=before.name if before else None)
        if after is None:
            return
        try:
            await self._apply_topic(after)
        except (OSError, StorageError) as error:
            self._log.error("topic could not be taken up", error, topic=after.name)
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry, after)

    def _retry(self, topic: Topic) -> None:
        if self._image is not None and self._image.topic(topic.name) == topic:
            self._following = asyncio.get_running_loop().create_task(self._try_again(self._following, topic))

    async def _try_again(self, earlier: asyncio.Task[None] | None, topic: Topic) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        await self._follow_topic(None, topic)

    async def _apply_topic(self, topic: Topic) -> None:
        settings = TopicConfig(self._config, topic.configs)
        config = LogConfig.resolve(settings, self._config)
        mine = [index for index, state in enumerate(topic.partitions) if self._node_id in state.replicas]
        missing = [index for index in mine if self._logs.get(topic.id, index) is None]
        if missing:
            create = partial(self._logs.create, topic.name, topic.id, missing, config)
            await self._threads.run("background", create)
        for index in mine:
            replica = self._replicas.get((topic.name, index))
            if replica is None:
                replica = self._take_up(topic, index, settings)
            replica.configure(config, settings[DURABILITY], settings[MIN_INSYNC_REPLICAS])

    def _take_up(self, topic: Topic, index: int, settings: TopicConfig) -> Replica:
        log = self._logs.get(topic.id, index)
        assert log is not None
        partition = Partition(
            settings[DURABILITY], log.log_end_offset, log.flushed_offset, log.high_watermark
        )
        name = TopicPartition(topic.name, index)
        replica = Replica(name, topic.id, log, partition, self._flusher, self._threads, self.changed)
        self._replicas[topic.name, index] = replica
        state = topic.partitions[index]
        in_sync = InSync(
            self._node_id,
            state.replicas,
            frozenset(state.isr),
            state.partition_epoch,
            log.log_end_offset,
            {},
            self._clock.now_ms(),
        )
        replica.become_leader(state.leader_epoch, in_sync)
        return replica

    async def _remove_topic(self, topic: Topic) -> None:
        for index in range(len(topic.partitions)):
            replica = self._replicas.pop((topic.name, index), None)
            if replica is not None:
                replica.retire()
                self.changed.pop(replica, None)
        await self._threads.run("background", self._logs.begin_delete(topic.id).work)
