"""Replicas on this broker and their roles, which follow the cluster image.

Replicas are created and removed, and roles change, only through `load` and `follow`. A log whose topic was never in the
image is an orphan and is kept. A log is deleted if its topic was in the image and has been removed, or if the image has
the partition on other brokers. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from penstock.clock import monotonic_ms
from penstock.cluster import reassignment
from penstock.cluster.image import (
    NO_LEADER,
    ClusterImage,
    ImageChange,
    PartitionState,
    RegisteredBroker,
    TopicImage,
)
from penstock.config import (
    ARCHIVE_OFFSETS,
    ARCHIVE_REQUIRED,
    CLUSTER_SECRET,
    FOLLOWER_REPLICATION_THROTTLED_RATE,
    LEADER_REPLICATION_THROTTLED_RATE,
    MIN_INSYNC_REPLICAS,
    BrokerConfig,
    Durability,
    TopicConfig,
)
from penstock.config import FOLLOWER_REPLICATION_THROTTLED_REPLICAS as FOLLOWER_THROTTLED
from penstock.config import LEADER_REPLICATION_THROTTLED_REPLICAS as LEADER_THROTTLED
from penstock.errors import BrokerError, ErrorCode, StorageError
from penstock.model import BrokerEpoch, BrokerId, Offset, TopicPartition
from penstock.observability.alarms import AlarmKind
from penstock.replication.admission import LengthCheck
from penstock.replication.context import ReplicationContext
from penstock.replication.delay_counts import DelayCounts
from penstock.replication.fetchers import Fetchers
from penstock.replication.in_sync import InSync
from penstock.replication.projected_log import ScanSlots
from penstock.replication.refused_batches import RefusedBatches
from penstock.replication.replica import Replica, ReplicaContext
from penstock.replication.throttle import Throttle
from penstock.storage.log_config import LogConfig

RETRY_SECONDS = 1.0


class ReplicaManager:
    def __init__(self, context: ReplicationContext, config: BrokerConfig) -> None:
        self.config = config
        self.changed: dict[Replica, None] = {}
        """Replicas with appends since their last checkpoint."""
        self._upkeep: dict[Replica, None] = {}
        self._replicated: dict[Replica, None] = {}
        """Replicas that lead, or have led, a partition with followers."""
        self.writing_checkpoints = asyncio.Lock()
        """Lock for writing the checkpoints of all logs."""
        self.in_sync_due = asyncio.Event()
        """Set if an in-sync set may have to change: a follower has caught up, or a broker has registered or left."""
        self.refused = RefusedBatches(context.clock)
        self.leader_throttle = Throttle(context.clock)
        """Throttle for records that this broker sends to followers outside of the in-sync set."""
        self._follower_throttle = Throttle(context.clock)
        self._context = context
        self._node_id = context.node_id
        self._logs = context.logs
        self._threads = context.threads
        self._replica_context = ReplicaContext(
            context.flusher,
            context.threads,
            self.refused,
            self.changed,
            self._upkeep,
            self.in_sync_due.set,
            ScanSlots(context.threads, context.clock),
        )
        self._logger = context.logger
        self._image: ClusterImage | None = None
        self._newest: ClusterImage | None = None
        """Newest image. Its changes may not be applied to replicas yet."""
        self._replicas: dict[tuple[str, int], Replica] = {}
        self._fetchers = Fetchers(self, context)
        self._following: asyncio.Task[None] | None = None
        self._set_rates()

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[Replica]:
        return iter(tuple(self._replicas.values()))

    @property
    def upkeep(self) -> tuple[Replica, ...]:
        """Replicas that the maintenance has to visit, see `ReplicaContext.upkeep`."""
        return tuple(self._upkeep)

    @property
    def unsound(self) -> list[Replica]:
        """Replicas whose logs have failed or are damaged."""
        found = []
        for log in self._logs.unsound:
            name = log.topic_partition
            replica = self._replicas.get((name.topic, name.partition))
            if replica is not None and replica.log is log:
                found.append(replica)
        return found

    @property
    def replicated(self) -> tuple[Replica, ...]:
        """Replicas of partitions with followers: all leaders, and some replicas that do not lead any more."""
        return tuple(self._replicated)

    def get(self, topic: str, partition: int) -> Replica:
        """The replica of a partition; BrokerError if it does not lead."""
        replica = self._held(topic, partition)
        if not replica.partition.is_leader:
            raise BrokerError(
                ErrorCode.not_leader_or_follower, f"this broker does not lead {topic}-{partition}"
            )
        return replica

    def get_in_sync(self, topic: str, partition: int) -> Replica:
        """The replica of a partition; BrokerError unless it leads or is in sync."""
        replica = self._held(topic, partition)
        if not (replica.partition.is_leader or self.is_in_sync(replica)):
            raise BrokerError(
                ErrorCode.not_leader_or_follower, f"this broker is not in sync in {topic}-{partition}"
            )
        return replica

    def _held(self, topic: str, partition: int) -> Replica:
        replica = self._replicas.get((topic, partition))
        if replica is None:
            known = self._image is not None and self._image.partition(TopicPartition(topic, partition))
            raise BrokerError(
                ErrorCode.not_leader_or_follower if known else ErrorCode.unknown_topic_or_partition,
                f"{topic}-{partition} is not on this broker",
            )
        return replica

    @property
    def scan_slots(self) -> ScanSlots:
        return self._replica_context.scan_slots

    @property
    def delay_counts(self) -> DelayCounts:
        return self._replica_context.delay_counts

    @property
    def length_limits(self) -> dict[str, LengthCheck]:
        """Checks of topics whose queues have a maximum length, by topic."""
        return self._replica_context.length_limits

    @property
    def context(self) -> ReplicationContext:
        return self._context

    def get_any(self, topic: str, partition: int) -> Replica:
        """The replica of a partition in any role, for a broker that repairs its own replica from it."""
        return self._held(topic, partition)

    # --- the cluster, for fetchers

    @property
    def alive(self) -> Mapping[BrokerId, BrokerEpoch]:
        """Registered brokers and their broker epochs, without brokers that are stopping."""
        brokers = () if self._image is None else self._image.brokers.values()
        return {each.node_id: each.epoch for each in brokers if not each.is_stopping}

    @property
    def broker_epoch(self) -> BrokerEpoch:
        me = self.broker(self._node_id)
        return BrokerEpoch(-1) if me is None else me.epoch

    @property
    def secret(self) -> str | None:
        """Cluster secret, by which brokers authenticate to each other; None if there is none."""
        return self.config[CLUSTER_SECRET] or (self._image.secret if self._image else None)

    def broker(self, broker_id: BrokerId) -> RegisteredBroker | None:
        return None if self._image is None else self._image.brokers.get(broker_id)

    # --- replication throttles

    def say_again(self, replica: Replica) -> None:
        """Send the state of a follower to its leader again, because its log became damaged or was repaired."""
        self._fetchers.say_again(replica)

    def throttle_of(self, replica: Replica, follower: BrokerId) -> Throttle | None:
        """Throttle for records sent to `follower`; None if it is in sync or not throttled."""
        if not replica.is_throttled_as_leader or self.leader_throttle.is_off:
            return None
        return None if follower in replica.partition.in_sync.recorded else self.leader_throttle

    def pause_seconds(self, replica: Replica, received_bytes: int) -> float:
        """Time in seconds that a follower waits before its next fetch."""
        if not replica.is_throttled_as_follower or self._follower_throttle.is_off or self.is_in_sync(replica):
            return 0.0
        self._follower_throttle.take(received_bytes)
        return self._follower_throttle.wait_seconds()

    def is_in_sync(self, replica: Replica) -> bool:
        """True if this broker is in the recorded in-sync set."""
        topic = None if self._image is None else self._image.topic(replica.name.topic)
        if topic is None or topic.id != replica.topic_id or self._is_deleted(topic):
            return False
        state = self._image.partition(replica.name) if self._image is not None else None
        return state is not None and self._node_id in state.isr

    def _set_rates(self) -> None:
        self.leader_throttle.set_rate(self.config[LEADER_REPLICATION_THROTTLED_RATE])
        self._follower_throttle.set_rate(self.config[FOLLOWER_REPLICATION_THROTTLED_RATE])

    # --- changes of the image

    async def load(self, image: ClusterImage) -> None:
        """Create the replicas that this broker has in the image, at the start. `follow` applies later changes."""
        self._image = self._newest = image
        self._following = asyncio.get_running_loop().create_task(self._load(image))
        await self._following

    async def _load(self, image: ClusterImage) -> None:
        for topic in image.topics.values():
            await self._follow_topic(None, topic)

    def follow(self, change: ImageChange, config: BrokerConfig) -> None:
        """Apply a change of the image after all earlier changes. Two parts of it are applied at once: replicas stop
        leading if another broker leads now, and the phases of partitions change.
        """
        self._newest = change.after
        for name in sorted(change.topics):
            self._stop_deleted(change.before.topic(name), change.after.topic(name))
            self._stop_leading(change.after.topic(name))
            self._set_phases(change.before.topic(name), change.after.topic(name))
            self._drop_projections(change.before.topic(name), change.after.topic(name))
        self._following = asyncio.get_running_loop().create_task(self._apply(self._following, change, config))

    def _stop_deleted(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """Stop leading the partitions of a deleted topic at once. Its logs are deleted later, and a new topic may have
        the same name by then.
        """
        if before is not None and (after is None or after.id != before.id):
            for index in range(len(before.partitions)):
                replica = self._replicas.get((before.name, index))
                if replica is not None and (after is None or replica.topic_id != after.id):
                    replica.stop_leading()

    def _is_deleted(self, topic: TopicImage) -> bool:
        """True if a later change, which is not applied yet, deletes the topic."""
        newest = None if self._newest is None else self._newest.topic(topic.name)
        return newest is None or newest.id != topic.id

    def _stop_leading(self, topic: TopicImage | None) -> None:
        if topic is not None:
            for index, state in enumerate(topic.partitions):
                replica = self._replicas.get((topic.name, index))
                if (
                    replica is not None
                    and state.leader != self._node_id
                    and state.leader_epoch > replica.partition.leader_epoch
                ):
                    replica.stop_leading()

    def _set_phases(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """Set the phases of a shrinking topic's replicas. Replicas of removed partitions stop leading."""
        if before is None or after is None or not (before.is_shrinking or after.is_shrinking):
            return
        for index in range(max(len(before.partitions), len(after.partitions))):
            replica = self._replicas.get((after.name, index))
            if replica is None or replica.topic_id != after.id:
                continue
            if index >= len(after.partitions):
                replica.stop_leading()
            else:
                replica.set_phase(after.partitions[index].phase)

    def _drop_projections(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """Drop the projections of a view that was deleted or has another filter."""
        if before is None or before.view_of is None:
            return
        if after is None or (after.id, after.configs) != (before.id, before.configs):
            for replica in self._replicas.values():
                replica.projections.drop(before.id)

    def on_lost_session(self) -> None:
        """Stop leading all partitions after the session expired. The broker leads again only in later leader epochs."""
        for replica in self._replicas.values():
            replica.stop_leading()

    async def stop(self) -> None:
        """Stop all fetchers, and wait for running truncations."""
        await self.settled()
        await self._fetchers.stop()
        truncating = [
            replica.truncating for replica in self._replicas.values() if replica.truncating is not None
        ]
        if truncating:
            await asyncio.wait(truncating)

    async def settled(self) -> None:
        """Wait until all changes so far were applied: new partitions accept writes, removed ones are deleted."""
        if self._following is not None:
            await asyncio.wait([self._following])

    async def _apply(
        self, earlier: asyncio.Task[None] | None, change: ImageChange, config: BrokerConfig
    ) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        names = change.topics if config is self.config else change.topics | change.after.topics.keys()
        self.config = config
        self._set_rates()
        self._image = change.after
        if change.before.brokers != change.after.brokers:
            self._on_brokers()
        for name in sorted(names):
            await self._follow_topic(change.before.topic(name), change.after.topic(name))

    async def _follow_topic(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """Apply a change of one topic. If a disk error prevents the creation of replicas, it is retried later, because
        space may become free. Other topics are not delayed.
        """
        try:
            if before is not None and (after is None or after.id != before.id):
                await self._remove_topic(before)
        except OSError as error:
            self._logger.error("topic could not be removed", error, topic=before.name if before else None)
        if after is None or self._is_deleted(after):
            return
        try:
            await self._apply_topic(after)
        except (OSError, StorageError) as error:
            self._logger.error("replicas of a topic could not be created", error, topic=after.name)
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry, after)

    def _retry(self, topic: TopicImage) -> None:
        if self._image is not None and self._image.topic(topic.name) == topic:
            self._following = asyncio.get_running_loop().create_task(self._try_again(self._following, topic))

    async def _try_again(self, earlier: asyncio.Task[None] | None, topic: TopicImage) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        await self._follow_topic(None, topic)

    async def _apply_topic(self, topic: TopicImage) -> None:
        settings = TopicConfig(self.config, topic.configs)
        config = LogConfig.resolve(settings, self.config)
        mine = [index for index, state in enumerate(topic.partitions) if self._node_id in state.replicas]
        await self._leave_partitions(topic)
        missing = [index for index in mine if self._logs.get(topic.id, index) is None]
        # Existing replicas first: if a new log cannot be created, they still get new settings and roles.
        await self._apply_partitions(
            topic, [index for index in mine if index not in missing], settings, config
        )
        for index in missing:
            # A new replica outside of the in-sync set begins at offset 0: it fetches the records that an earlier
            # replica on this broker had from the leader again.
            if self._node_id not in topic.partitions[index].isr:
                self._logs.forget(topic.id, index)
        if missing:
            create = partial(self._logs.create, topic.name, topic.id, missing, config)
            await self._threads.run("background", create)
            await self._apply_partitions(topic, missing, settings, config)

    async def _apply_partitions(
        self, topic: TopicImage, indexes: Sequence[int], settings: TopicConfig, config: LogConfig
    ) -> None:
        for index in indexes:
            await self._begin_again(topic, index)
        for index in indexes:
            replica = self._replicas.get((topic.name, index))
            if replica is None:
                replica = self._take_up(topic, index, settings)
            replica.configure(config, settings.durability, settings[MIN_INSYNC_REPLICAS])
            replica.is_throttled_as_leader = (index, self._node_id) in settings[LEADER_THROTTLED]
            replica.is_throttled_as_follower = (index, self._node_id) in settings[FOLLOWER_THROTTLED]
            replica.archived_offset = (
                Offset(settings[ARCHIVE_OFFSETS].get(index, 0)) if settings[ARCHIVE_REQUIRED] else None
            )
            await self._take_role(replica, topic.partitions[index])
            replica.partition_epoch = topic.partitions[index].partition_epoch

    async def _begin_again(self, topic: TopicImage, index: int) -> None:
        """Move the log start to the partition's first offset, if the partition was removed and created again."""
        first_offset = topic.partitions[index].first_offset
        log = self._logs.get(topic.id, index)
        if not first_offset or log is None or log.log_start_offset >= first_offset:
            return
        if log.log_end_offset > first_offset:
            log.advance_log_start(first_offset)
            return
        if log.jobs.begin_truncation():
            try:
                restart = partial(self._logs.restart, log, first_offset, self._context.clock.now_ms())
                async with self.writing_checkpoints:
                    await self._threads.run("background", restart)
            finally:
                log.jobs.finish_truncation()

    def _take_up(self, topic: TopicImage, index: int, settings: TopicConfig) -> Replica:
        log = self._logs.get(topic.id, index)
        assert log is not None
        replica = Replica(log, settings.durability, self._replica_context)
        self._replicas[topic.name, index] = replica
        # The phase is that of the newest image, whose changes may not be applied yet.
        newest = None if self._newest is None else self._newest.partition(replica.name)
        replica.set_phase((newest or topic.partitions[index]).phase)
        return replica

    # --- roles

    async def _take_role(self, replica: Replica, state: PartitionState) -> None:
        if replica.truncating is not None:
            await asyncio.wait([replica.truncating])
        partition = replica.partition
        replica.unclean_epoch = state.unclean_epoch
        replica.adding_replicas = len(state.adding_replicas)
        if state.leader_epoch > partition.leader_epoch:
            self._context.alarms.clear(AlarmKind.TRUNCATION_REFUSED, replica.name)
            if state.leader == self._node_id:
                self._fetchers.unfollow(replica)
                replica.become_leader(state.leader_epoch, self._in_sync(replica, state))
            else:
                replica.become_follower(state.leader_epoch)
                if state.leader == NO_LEADER:
                    self._fetchers.unfollow(replica)
                else:
                    self._fetchers.follow(replica, state.leader)
        elif partition.is_leader:
            in_sync = partition.in_sync
            in_sync.set_replicas(state.replicas, monotonic_ms(self._context.clock))
            in_sync.recorded_as(frozenset(state.isr), state.partition_epoch, has_eligible=state.has_eligible)
            replica.on_in_sync_change(partition.on_in_sync())
        if partition.is_leader:
            if partition.in_sync.followers:
                self._replicated[replica] = None
            else:
                self._replicated.pop(replica, None)
            self._see_who_leaves(replica, state)
        self._see_how_it_counts(replica, state)

    def _see_who_leaves(self, replica: Replica, state: PartitionState) -> None:
        """Set the in-sync members that have to leave: replicas that a reassignment removes, and stopping brokers."""
        image = self._image
        assert image is not None
        going = reassignment.leaving(image, replica.name, state, self.config)
        if not image.is_stopping(self._node_id):
            going = going.union(filter(image.is_stopping, state.isr))
        if replica.partition.in_sync.set_leaving(going):
            self.in_sync_due.set()

    def _in_sync(self, replica: Replica, state: PartitionState) -> InSync:
        return InSync(
            self._node_id,
            state.replicas,
            frozenset(state.isr),
            state.partition_epoch,
            replica.log.log_end_offset,
            self._machines(),
            monotonic_ms(self._context.clock),
            has_eligible=state.has_eligible,
            min_in_sync=replica.min_insync_replicas,
        )

    def _machines(self) -> Mapping[BrokerId, str]:
        brokers = {} if self._image is None else self._image.brokers
        return {broker.node_id: broker.machine_id for broker in brokers.values()}

    def _see_how_it_counts(self, replica: Replica, state: PartitionState) -> None:
        before, replica.flushes_as_follower = (
            replica.flushes_as_follower,
            self._counts_by_flush(replica, state),
        )
        if replica.flushes_as_follower and not before:
            self._fetchers.say_again(replica)  # otherwise nothing may cause the follower to flush

    def _counts_by_flush(self, replica: Replica, state: PartitionState) -> bool:
        """True if the leader counts only records that this follower has fsynced, by the rule of `InSync`: always with
        durability `fsync`, and with `auto` if the in-sync set runs on one machine.
        """
        durability = replica.partition.durability
        if durability is not Durability.AUTO:
            return durability is Durability.FSYNC
        machines = self._machines()
        mine = machines.get(self._node_id)
        return all(machines.get(member, mine) == mine for member in (*state.isr, state.leader))

    def _on_brokers(self) -> None:
        """Apply a change of the registered brokers or their machines."""
        assert self._image is not None
        self.in_sync_due.set()
        machines = self._machines()
        for replica in self._replicas.values():
            state = self._image.partition(replica.name)
            if replica.partition.is_leader:
                replica.partition.in_sync.set_machines(machines)
                replica.on_in_sync_change(replica.partition.on_in_sync())
                if state is not None:
                    self._see_who_leaves(replica, state)
            elif state is not None:
                self._see_how_it_counts(replica, state)

    async def truncate(self, replica: Replica, work: Callable[[], None]) -> bool:
        """Truncate a follower's log in a thread pool; False if another job changes its files."""
        if not replica.log.jobs.begin_truncation():
            return False
        # A separate task, because the caller may be cancelled but the truncation must not.
        replica.truncating = asyncio.get_running_loop().create_task(self._truncate(replica, work))
        await asyncio.shield(replica.truncating)
        return True

    async def refetch(self, replica: Replica, leader: BrokerId, work: Callable[[], None]) -> bool:
        """Truncate a follower's log as `truncate` does, and fetch the removed records from the leader again.

        The replica is not followed during the truncation, because responses would refer to the log before it.
        """
        epoch = replica.partition.leader_epoch
        self._fetchers.unfollow(replica)
        try:
            return await self.truncate(replica, work)
        finally:
            partition, name = replica.partition, replica.name
            is_held = self._replicas.get((name.topic, name.partition)) is replica
            if is_held and not partition.is_leader and partition.leader_epoch == epoch:
                self._fetchers.follow(replica, leader)

    async def _truncate(self, replica: Replica, work: Callable[[], None]) -> None:
        try:
            async with self.writing_checkpoints:
                await self._threads.run("background", work)
        finally:
            replica.log.jobs.finish_truncation()
            replica.on_truncated()

    async def _remove_topic(self, topic: TopicImage) -> None:
        await self._retire(topic, range(len(topic.partitions)))
        await self._threads.run("background", self._logs.begin_delete(topic.id).work)

    async def _leave_partitions(self, topic: TopicImage) -> None:
        """Delete the logs of partitions that were moved to other brokers, or were removed from the topic.

        This is done at the start too, because the broker may have crashed before it deleted them. The image at the
        start is new enough for that: it is at least as new as the broker's session.
        """
        moved = [
            index
            for index, state in enumerate(topic.partitions)
            if self._node_id not in state.replicas
            and self._logs.get(topic.id, index) is not None
            and state.partition_epoch > self._known_epoch(topic.name, index)
        ]
        count = len(topic.partitions)
        removed = range(count, count + len(topic.removed))
        moved += [index for index in removed if self._logs.get(topic.id, index) is not None]
        if moved:
            self._logger.info(
                "deleting replicas that are not assigned to this broker", topic=topic.name, partitions=moved
            )
            await self._retire(topic, moved)
            await self._threads.run("background", self._logs.begin_delete(topic.id, moved).work)

    def _known_epoch(self, topic: str, index: int) -> int:
        """Partition epoch in which this broker had the replica; -1 if it has none."""
        replica = self._replicas.get((topic, index))
        return -1 if replica is None else replica.partition_epoch

    async def _retire(self, topic: TopicImage, partitions: Iterable[int]) -> None:
        for index in partitions:
            replica = self._replicas.pop((topic.name, index), None)
            if replica is not None:
                self._fetchers.unfollow(replica)
                if replica.truncating is not None:
                    await asyncio.wait([replica.truncating])
                replica.retire()
                self._context.alarms.forget(replica.name)
                for registered in (self.changed, self._upkeep, self._replicated):
                    registered.pop(replica, None)
