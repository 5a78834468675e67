"""Maximum length of queues (`share.max.length`): the leader refuses records that a queue has no room for.

A broker counts the unsettled records of the partitions that it leads, and allows its part of the maximum. Records of
share-partitions that are being loaded are not counted. Loop thread only.
"""

from __future__ import annotations

from functools import partial

from penstock.cluster.image import ImageChange, TopicImage
from penstock.cluster.metadata import ClusterMetadata
from penstock.config import SHARE_MAX_LENGTH, SHARE_QUEUE_TOPIC, GroupConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import ShareKey
from penstock.queues.share_partitions import SharePartitions
from penstock.replication.replica_manager import ReplicaManager


class QueueLengths:
    def __init__(
        self, metadata: ClusterMetadata, replicas: ReplicaManager, partitions: SharePartitions
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._partitions = partitions
        self._limits: dict[str, list[tuple[str, int]]] = {}
        """Queues with a maximum length, each with it, by topic."""

    def on_image(self, change: ImageChange) -> None:
        if change.before.group_configs != change.after.group_configs:
            self.read()
        elif self._limits and any(name in self._limits for name in change.topics):
            self._load()

    def read(self) -> None:
        """Set the checks of all topics whose queues have a maximum length."""
        limits: dict[str, list[tuple[str, int]]] = {}
        for group, configs in self._metadata.image.group_configs.items():
            settings = GroupConfig(self._metadata.config, configs.values)
            topic, maximum = settings[SHARE_QUEUE_TOPIC], settings[SHARE_MAX_LENGTH]
            if topic and maximum:
                limits.setdefault(topic, []).append((group, maximum))
        self._limits = limits
        self._load()
        checks = self._replicas.length_limits
        checks.clear()
        checks.update({topic: partial(self._check, topic, queues) for topic, queues in limits.items()})

    def _load(self) -> None:
        """Load the share-partitions of this broker, so that the first send is counted."""
        for topic, queues in self._limits.items():
            known = self._metadata.image.topic(topic)
            for group, _ in queues if known is not None else ():
                assert known is not None
                self._depth(group, known)

    def _check(self, topic: str, queues: list[tuple[str, int]], records: int) -> None:
        known = self._metadata.image.topic(topic)
        if known is None:
            return
        for group, maximum in queues:
            depth, led = self._depth(group, known)
            allowed = -(-maximum * led // max(1, len(known.partitions)))
            if depth + records > allowed:
                raise BrokerError(
                    ErrorCode.policy_violation,
                    f"queue {group} is full: it has {depth} messages here, and share.max.length is {maximum}; try "
                    "again when consumers have settled some",
                )

    def _depth(self, group: str, topic: TopicImage) -> tuple[int, int]:
        """Number of unsettled records of a queue in the partitions that this broker leads, and of these partitions."""
        depth = led = 0
        for index in range(len(topic.partitions)):
            try:
                replica = self._replicas.get(topic.name, index)
            except BrokerError:
                continue
            led += 1
            partition = self._partitions.get(ShareKey(group, topic.id, index), replica).partition
            if partition is not None:
                start = max(partition.start_offset, replica.log.log_start_offset)
                depth += max(0, replica.log.log_end_offset - start - partition.settled)
        return depth, led
