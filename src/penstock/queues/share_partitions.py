"""The share-partitions that this broker serves: one `ShareLeader` for each group and partition, loaded at first use.

A share-partition closes when this broker stops leading the partition, and gets changed settings of its group. Loop
thread only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import cast

from penstock.clock import Clock
from penstock.cluster.image import ImageChange
from penstock.cluster.metadata import ClusterMetadata
from penstock.config import GroupConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import ShareKey
from penstock.observability.logs import Logger
from penstock.queues.batch_notes import RecordBodies
from penstock.queues.leader_context import LetterSink
from penstock.queues.share_leader import ShareLeader
from penstock.queues.share_settings import GroupShareSettings, share_settings
from penstock.queues.state_client import ShareStateClient
from penstock.records.priority import LEVELS
from penstock.replication.projections import Projection
from penstock.replication.replica import Replica
from penstock.state_log.timers import Timers
from penstock.threads import Threads


@dataclass(slots=True)
class ShareCounts:
    """Counters of share groups, for metrics."""

    lock_timeouts: int = 0
    redelivered: int = 0
    archived: int = 0
    dead_letters: dict[int, int] = field(default_factory=dict)
    """Number of dead letters by reason."""
    delivered: list[int] = field(default_factory=lambda: [0] * LEVELS)
    """Number of deliveries by priority, in groups with priorities."""


class SharePartitions:
    def __init__(
        self,
        metadata: ClusterMetadata,
        states: ShareStateClient,
        clock: Clock,
        threads: Threads,
        logger: Logger,
        letters: LetterSink,
    ) -> None:
        self.timers = Timers(clock, self._on_due)
        self.states = states
        self.threads = threads
        self.logger = logger
        self.letters = letters
        self.bodies = RecordBodies()
        self.counts = ShareCounts()
        """Counts of share-partitions that this broker does not serve any more."""
        self._metadata = metadata
        self._clock = clock
        self._leaders: dict[ShareKey, ShareLeader] = {}
        self._settings: dict[str | None, GroupShareSettings] = {}
        """Settings of groups that have their own configs, by group id; the key None has the settings of all others."""

    def __len__(self) -> int:
        return len(self._leaders)

    @property
    def all(self) -> Iterable[ShareLeader]:
        return tuple(self._leaders.values())

    def find(self, key: ShareKey) -> ShareLeader | None:
        """The share-partition; None if this broker does not serve it."""
        return self._leaders.get(key)

    def get(self, key: ShareKey, replica: Replica, projection: Projection | None = None) -> ShareLeader:
        """The share-partition of a partition that this broker leads; it may still be loading.

        `projection` is the projection through which the topic is read; None for the stored log.
        """
        known = self._leaders.get(key)
        if known is not None:
            if known.is_leading and known.replica is replica:
                known.read_through(projection)
                return known
            known.close(BrokerError(ErrorCode.not_leader_or_follower))
        leader = self._leaders[key] = ShareLeader(key, replica, self, projection)
        return leader

    def stop(self) -> None:
        for leader in self.all:
            leader.close(BrokerError(ErrorCode.not_leader_or_follower, "the broker is stopping"))
        self.timers.close()

    def on_image(self, change: ImageChange) -> None:
        before, after = change.before, change.after
        if before.group_configs != after.group_configs or before.broker_configs != after.broker_configs:
            self._settings.clear()
            for leader in self.all:
                leader.follow_settings()
        for leader in self.all:
            names = leader.replica.name.topic, before.topic_names.get(leader.key.topic_id)
            if not change.topics.isdisjoint(names) and not self._leads(leader):
                leader.close(BrokerError(ErrorCode.not_leader_or_follower))

    def _leads(self, leader: ShareLeader) -> bool:
        image, name = self._metadata.image, leader.replica.name
        read = image.topic_by_id(leader.key.topic_id)
        topic = image.topic(name.topic)
        if read is None or topic is None or name.topic != (read.view_of or read.name):
            return False
        if topic.id != leader.replica.topic_id or name.partition >= len(topic.partitions):
            return False
        return topic.partitions[name.partition].leader_epoch == leader.leader_epoch

    # --- what share-partitions ask for

    def wall_ms(self) -> int:
        return self._clock.now_ms()

    def settings_of(self, group_id: str) -> GroupShareSettings:
        own = self._metadata.image.group_configs.get(group_id)
        name = None if own is None else group_id
        known = self._settings.get(name)
        if known is None:
            broker = self._metadata.config
            config = GroupConfig(broker, None if own is None else own.values)
            known = self._settings[name] = share_settings(broker, config)
        return known

    def closed(self, leader: ShareLeader) -> None:
        for code, count in leader.letters.written.items():
            self.counts.dead_letters[code] = self.counts.dead_letters.get(code, 0) + count
        if leader.partition is not None:
            self.counts.lock_timeouts += leader.partition.lock_timeouts
            self.counts.redelivered += leader.partition.redelivered
            self.counts.archived += leader.partition.archived_by_limit
            for level, count in enumerate(leader.partition.delivered):
                self.counts.delivered[level] += count
        if self._leaders.get(leader.key) is leader:
            del self._leaders[leader.key]

    def _on_due(self, key: Hashable) -> None:
        leader = self._leaders.get(cast(ShareKey, key))
        if leader is not None:
            leader.on_deadline()
