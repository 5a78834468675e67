"""The shards of a coordinator: one for each partition of its internal topic that this broker leads.

Shards are loaded and unloaded as leaders change. The response to a request for a shard that is still loading is
COORDINATOR_LOAD_IN_PROGRESS. A shard is loaded when all records of its log are committed. While fewer replicas than
min.insync.replicas are in sync this may take long, so other shards are loaded meanwhile. A shard is loaded again if its
log refused a write, and after the repair of damaged records that were skipped. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.clock import Clock
from penstock.cluster.administration import Administration
from penstock.cluster.image import NO_LEADER, TopicImage
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.topics import CreatableTopic
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, LeaderEpoch, Offset
from penstock.observability.logs import Logger
from penstock.replication.replica import Replica
from penstock.replication.replica_manager import ReplicaManager
from penstock.state_log.appender import under_min_insync
from penstock.state_log.partitioning import partition_of
from penstock.state_log.shard import Shard
from penstock.storage.log import AppendInfo
from penstock.threads import Threads

RETRY_SECONDS = 1.0
"""Pause in seconds before a shard is loaded again after a refused append or an unreadable log."""


S = TypeVar("S", bound=Shard[Any])


@dataclass(frozen=True, slots=True)
class CoordinatorContext:
    """The dependencies of a coordinator."""

    node_id: BrokerId
    metadata: ClusterMetadata
    administration: Administration
    replicas: ReplicaManager
    clock: Clock
    threads: Threads
    logger: Logger


class Shards(Generic[S]):
    def __init__(
        self,
        topic: str,
        make_topic: Callable[[BrokerConfig], CreatableTopic],
        context: CoordinatorContext,
        load: Callable[[int, Replica], Awaitable[S]],
        on_loaded: Callable[[S], Awaitable[None]],
    ) -> None:
        """`load` makes a shard from its log; `on_loaded` is called when it is in use, before the next is loaded."""
        self.load_seconds = 0.0
        self._topic = topic
        self._make_topic = make_topic
        self._node_id = context.node_id
        self._metadata = context.metadata
        self._administration = context.administration
        self._replicas = context.replicas
        self._clock = context.clock
        self._logger = context.logger
        self._load_shard = load
        self._on_loaded = on_loaded
        self._shards: dict[int, S] = {}
        self._epochs: dict[int, LeaderEpoch] = {}
        """Leader epochs of the partitions that this broker leads, loaded or not."""
        self._unloaded: dict[int, None] = {}
        """Partitions of this broker that are not loaded yet; the first is loaded next."""
        self._failed: set[int] = set()
        """Partitions of this broker whose log refuses all writes until the broker restarts."""
        self._uncommitted: dict[int, Replica] = {}
        """Replicas of unloaded shards whose records are not all committed; these shards are loaded after the commit."""
        self._repaired: set[int] = set()
        """Shards whose log was repaired during their load, so that they may have skipped the repaired records."""
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None

    # --- finding the shard of a name

    async def find(self, name: str) -> BrokerId:
        """Return the broker that coordinates the name; create the internal topic if it does not exist."""
        if self._topic not in self._metadata.image.topics:
            await self._create_topic()
        leader = self.leader_of(name)
        if leader == NO_LEADER:
            raise BrokerError(ErrorCode.coordinator_not_available)
        if leader == self._node_id and any(shard.is_in_doubt for shard in self._shards.values()):
            raise BrokerError(
                ErrorCode.coordinator_not_available,
                "this broker has lost its connections to the cluster; ask another broker",
            )
        return leader

    def leader_of(self, name: str) -> BrokerId:
        topic = self._metadata.image.topic(self._topic)
        if topic is None:
            raise BrokerError(ErrorCode.coordinator_not_available, f"the topic {self._topic} does not exist")
        return topic.partitions[partition_of(name, len(topic.partitions))].leader

    def of(self, name: str) -> S:
        """Return the shard of the name; BrokerError if another broker leads its partition, or the shard is
        not loaded.
        """
        topic = self._metadata.image.topic(self._topic)
        if topic is None:
            raise BrokerError(ErrorCode.not_coordinator)
        index = partition_of(name, len(topic.partitions))
        shard = self._shards.get(index)
        if shard is not None:
            if shard.is_in_doubt:
                raise BrokerError(
                    ErrorCode.not_coordinator,
                    "this broker has lost its connections to the cluster; find the coordinator again",
                )
            return shard
        if index in self._failed:
            raise BrokerError(
                ErrorCode.coordinator_not_available,
                f"the log of {self._topic}-{index} failed; restart the broker",
            )
        if index not in self._unloaded:
            raise BrokerError(ErrorCode.not_coordinator)
        self._unloaded = {index: None, **self._unloaded}
        if (replica := self._uncommitted.get(index)) is not None and replica.partition.is_held:
            raise under_min_insync(replica)
        raise BrokerError(ErrorCode.coordinator_load_in_progress)

    def get(self, index: int) -> S | None:
        return self._shards.get(index)

    @property
    def loaded(self) -> tuple[S, ...]:
        return tuple(self._shards.values())

    @property
    def is_loading(self) -> bool:
        return bool(self._unloaded)

    async def _create_topic(self) -> None:
        try:
            (result,) = await self._administration.create_topics([self._make_topic(self._metadata.config)])
        except BrokerError as error:
            result = error
        if isinstance(result, BrokerError) and result.code is not ErrorCode.topic_already_exists:
            raise BrokerError(ErrorCode.coordinator_not_available, str(result)) from result
        with suppress(TimeoutError):  # loading continues, and clients retry until it is done
            await asyncio.wait_for(self._idle.wait(), RETRY_SECONDS)

    # --- following leadership

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.follow_leadership()

    async def stop(self) -> None:
        """Respond to all waiting requests; nothing is appended after this returns."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._retry is not None:
            self._retry.cancel()
        for index in tuple(self._epochs):
            self.unload(index)

    def follow_leadership(self) -> None:
        """Load and unload shards according to the image. A shard is loaded again in a later leader epoch, because
        another broker may have led the partition in between.
        """
        ours = _led_by(self._metadata.image.topic(self._topic), self._node_id)
        for index, epoch in tuple(self._epochs.items()):
            if ours.get(index) != epoch:
                self.unload(index)
        for index in sorted(ours.keys() - self._epochs.keys()):
            self._epochs[index] = ours[index]
            self.load(index)

    def load(self, index: int) -> None:
        self._unloaded[index] = None
        self._idle.clear()
        self._work.set()

    def unload(self, index: int) -> None:
        del self._epochs[index]
        self._unloaded.pop(index, None)
        self._failed.discard(index)
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.close(ErrorCode.not_coordinator)

    def lost(self, shard: Shard[Any]) -> None:
        """Load a shard again that has closed because its log refused its records."""
        index = shard.partition
        if self._shards.get(index) is not shard:
            return
        del self._shards[index]
        if shard.has_failed:
            self._failed.add(index)
            self._logger.warning(
                "coordinator shard failed; restart the broker",
                topic=self._topic,
                partition=index,
            )
        else:
            self._unloaded[index] = None
            self._logger.warning(
                "coordinator shard is loaded again after a failed write",
                topic=self._topic,
                partition=index,
            )
            self._load_later()

    def on_repaired(self, replica: Replica) -> None:
        """Load the shard of a repaired replica again, if damaged records were skipped when it was loaded."""
        index = replica.name.partition
        if replica.name.topic != self._topic:
            return
        if index in self._unloaded:
            self._repaired.add(index)
        shard = self._shards.get(index)
        if shard is None or not shard.passed_over_damage:
            return
        self._logger.info(
            "coordinator shard is loaded again after a repair", topic=self._topic, partition=index
        )
        del self._shards[index]
        shard.close(ErrorCode.coordinator_not_available)
        self.load(index)

    # --- loading

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            await self._replicas.settled()
            tried: set[int] = set()
            while (index := self._next_unloaded(tried)) is not None:
                tried.add(index)
                try:
                    await self._load_one(index)
                except Exception as error:  # noqa: BLE001 - a loop that dies would leave shards unread for good
                    self._logger.error_rarely(
                        "coordinator shard could not be loaded", error, topic=self._topic, partition=index
                    )
            if self._unloaded:
                self._load_later()
            else:
                self._idle.set()

    def _next_unloaded(self, tried: set[int]) -> int | None:
        return next((index for index in self._unloaded if index not in tried), None)

    def _load_later(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._load_again)

    def _load_again(self) -> None:
        self._retry = None
        self._work.set()

    async def _load_one(self, index: int) -> None:
        started = self._clock.monotonic()
        epoch = self._epochs[index]
        replica = self._replicas.get(self._topic, index)
        if replica.log.failed:
            self._unloaded.pop(index)
            self._failed.add(index)
            return
        if replica.partition.leader_epoch != epoch:
            return  # the replica has not become the leader yet
        if not self._is_committed(index, replica):
            return
        self._repaired.discard(index)
        shard = await self._load_shard(index, replica)
        if self._epochs.get(index) != epoch or index not in self._unloaded:
            shard.close(ErrorCode.not_coordinator)
            return  # this broker resigned while the shard was loading
        if shard.passed_over_damage and index in self._repaired:
            shard.close(ErrorCode.coordinator_not_available)
            return
        del self._unloaded[index]
        self._shards[index] = shard
        self.load_seconds += self._clock.monotonic() - started
        await self._on_loaded(shard)

    def _is_committed(self, index: int, replica: Replica) -> bool:
        """True if all records of the log are committed. If False, the shard is loaded when the present ones are."""
        if index in self._uncommitted:
            return False
        last_offset = Offset(replica.log.log_end_offset - 1)
        appended = AppendInfo(last_offset, last_offset, -1, replica.log.log_start_offset)
        if replica.when_committed(appended, partial(self._on_committed, index)):
            return True
        self._uncommitted[index] = replica
        return False

    def _on_committed(self, index: int, error: BrokerError | None) -> None:
        """Try to load the shard after its records were committed, or after this broker has stopped leading it."""
        self._uncommitted.pop(index, None)
        self._work.set()


def _led_by(topic: TopicImage | None, broker: BrokerId) -> dict[int, LeaderEpoch]:
    partitions = () if topic is None else topic.partitions
    return {index: state.leader_epoch for index, state in enumerate(partitions) if state.leader == broker}
