"""Maximum length of queues (`share.max.length`): the leader refuses records for which a queue has no room.

With `share.max.length.policy=dead-letter` the leader accepts such records, and makes the oldest records dead letters
instead (`queue_overflow.py`). A broker counts the unsettled records of the partitions that it leads, and compares them
with its share of the maximum. Share-partitions that are still loading count as empty. Loop thread only.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from penstock.cluster.image import ImageChange
from penstock.cluster.metadata import ClusterMetadata
from penstock.config import (
    DEAD_LETTER_TOPIC_NAME,
    SHARE_MAX_LENGTH,
    SHARE_MAX_LENGTH_POLICY,
    SHARE_QUEUE_TOPIC,
    GroupConfig,
    MaxLengthPolicy,
)
from penstock.errors import BrokerError, ErrorCode
from penstock.model import ShareKey
from penstock.queues.share_leader import ShareLeader
from penstock.queues.share_partitions import SharePartitions
from penstock.replication.replica_manager import ReplicaManager
from penstock.server.projection_kinds import projection_of
from penstock.server.queue_overflow import QueueOverflow


class LengthLimit(NamedTuple):
    group: str
    maximum: int
    gives_up: bool
    """True if the oldest records become dead letters; False if new records are refused."""


class QueueLengths:
    def __init__(
        self, metadata: ClusterMetadata, replicas: ReplicaManager, partitions: SharePartitions
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._partitions = partitions
        self._limits: dict[str, list[LengthLimit]] = {}
        """Queues with a maximum length, by topic."""
        self.overflow = QueueOverflow(self._excess, partitions.logger)

    def on_image(self, change: ImageChange) -> None:
        if change.before.group_configs != change.after.group_configs:
            self.read()
        elif self._limits and any(name in self._limits for name in change.topics):
            self._load()

    def read(self) -> None:
        """Read the settings of all queues, and set the length checks of their topics."""
        limits: dict[str, list[LengthLimit]] = {}
        for group, configs in self._metadata.image.group_configs.items():
            settings = GroupConfig(self._metadata.config, configs.values)
            topic, maximum = settings[SHARE_QUEUE_TOPIC], settings[SHARE_MAX_LENGTH]
            if topic and maximum:
                is_trimmed = settings[SHARE_MAX_LENGTH_POLICY] is MaxLengthPolicy.DEAD_LETTER
                gives_up = is_trimmed and bool(settings[DEAD_LETTER_TOPIC_NAME])
                limits.setdefault(topic, []).append(LengthLimit(group, maximum, gives_up))
        self._limits = limits
        self._load()
        checks = self._replicas.length_limits
        checks.clear()
        checks.update({topic: partial(self._check, topic, queues) for topic, queues in limits.items()})

    def _load(self) -> None:
        """Load the share-partitions that this broker leads, so that their records are counted at the first send."""
        for topic, limits in self._limits.items():
            for limit in limits:
                self._leaders(limit.group, topic)
                if limit.gives_up:
                    self.overflow.look(topic)

    def _check(self, topic: str, limits: list[LengthLimit], records: int) -> None:
        for limit in limits:
            leaders = self._leaders(limit.group, topic)
            depth, allowed = sum(map(_depth, leaders)), self._allowed(limit, topic, len(leaders))
            if depth + records <= allowed:
                continue
            if not limit.gives_up:
                raise BrokerError(
                    ErrorCode.policy_violation,
                    f"queue {limit.group} is full: it has {depth} messages on this broker, and share.max.length is "
                    f"{limit.maximum}; try again when consumers have settled some",
                )
            if any(_waits_for_letters(each) for each in leaders):
                raise BrokerError(
                    ErrorCode.policy_violation,
                    f"queue {limit.group} is full, and its dead letters cannot be written fast enough; try again when "
                    "its dead-letter topic can be written",
                )
            self.overflow.look(topic)

    def _excess(self, topic: str) -> list[tuple[int, list[ShareLeader]]]:
        """For each queue of a topic that is too long: the number of excess records, and its share-partitions, longest
        first.
        """
        found = []
        for limit in self._limits.get(topic, ()):
            leaders = self._leaders(limit.group, topic)
            depth = sum(_depth(each) - _archiving(each) for each in leaders)
            excess = depth - self._allowed(limit, topic, len(leaders))
            if limit.gives_up and excess > 0:
                found.append((excess, sorted(leaders, key=_depth, reverse=True)))
        return found

    def _allowed(self, limit: LengthLimit, topic: str, led: int) -> int:
        """Share of the maximum length that belongs to the `led` partitions that this broker leads."""
        known = self._metadata.image.topic(topic)
        return -(-limit.maximum * led // max(1, 0 if known is None else len(known.partitions)))

    def _leaders(self, group: str, name: str) -> list[ShareLeader]:
        """Share-partitions of a queue that this broker leads; they may still be loading."""
        image, found = self._metadata.image, []
        topic = image.topic(name)
        projection = None if topic is None else projection_of(image, name)
        for index in range(0 if topic is None else len(topic.partitions)):
            assert topic is not None
            try:
                replica = self._replicas.get(name, index)
            except BrokerError:
                continue
            found.append(self._partitions.get(ShareKey(group, topic.id, index), replica, projection))
        return found


def _depth(leader: ShareLeader) -> int:
    """Number of unsettled records of a share-partition; 0 while it is loading."""
    partition, log = leader.partition, leader.replica.log
    if partition is None:
        return 0
    start = max(partition.start_offset, log.log_start_offset)
    return max(0, log.log_end_offset - start - partition.settled)


def _archiving(leader: ShareLeader) -> int:
    return 0 if leader.partition is None else leader.partition.archiving


def _waits_for_letters(leader: ShareLeader) -> bool:
    partition = leader.partition
    return partition is not None and partition.archiving >= partition.settings.max_archiving
