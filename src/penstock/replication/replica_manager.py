"""The replicas this broker holds, kept in step with the cluster image.

Topics and partitions come and go only through `apply`; nothing is ever deleted because the image is merely empty:
a log whose topic the image does not know, and did not know a moment ago, is an orphan and stays. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from penstock.cluster.image import ClusterImage, ImageChange, Topic
from penstock.config import DURABILITY, MIN_INSYNC_REPLICAS, BrokerConfig, TopicConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, TopicPartition
from penstock.replication.flusher import Flusher
from penstock.replication.partition import Partition
from penstock.replication.replica import Replica
from penstock.storage.log_config import LogConfig
from penstock.storage.log_manager import LogManager
from penstock.threads import Threads


class ReplicaManager:
    def __init__(
        self, node_id: BrokerId, config: BrokerConfig, logs: LogManager, flusher: Flusher, threads: Threads
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._logs = logs
        self._flusher = flusher
        self._threads = threads
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
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition, f"{topic}-{partition} is not on this broker"
            )
        return replica

    async def load(self, image: ClusterImage) -> None:
        """Take up everything the image gives this broker, at start."""
        for topic in image.topics.values():
            await self._apply_topic(topic)

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
        for name in sorted(names):
            before, after = change.before.topic(name), change.after.topic(name)
            if before is not None and (after is None or after.id != before.id):
                await self._remove_topic(before)
            if after is not None:
                await self._apply_topic(after)

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
        leader_epoch = topic.partitions[index].leader_epoch
        partition = Partition(leader_epoch, settings[DURABILITY], log.log_end_offset, log.flushed_offset)
        name = TopicPartition(topic.name, index)
        replica = Replica(name, topic.id, log, partition, self._flusher, self._threads, self.changed)
        self._replicas[topic.name, index] = replica
        return replica

    async def _remove_topic(self, topic: Topic) -> None:
        for index in range(len(topic.partitions)):
            replica = self._replicas.pop((topic.name, index), None)
            if replica is not None:
                replica.retire()
                self.changed.pop(replica, None)
        await self._threads.run("background", self._logs.begin_delete(topic.id).work)
