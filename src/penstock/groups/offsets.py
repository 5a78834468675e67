"""The committed offsets of the groups of one shard: visible once committed, gone when they have expired (KIP-211).

A commit is pending from its append until its batch is committed; nobody is answered with it before, and with one of a
transaction not before that is committed. An offset belongs to the topic with its id: where that topic was deleted, made
again or not, the offset is never answered. Pure: times and the cluster image come in. Called by `shard` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.cluster.image import ClusterImage
from penstock.config import CLEANUP_POLICY, RETENTION_MS, BrokerConfig, CleanupPolicy, TopicConfig
from penstock.groups.records import GroupRecord, OffsetKey, OffsetValue
from penstock.groups.transactional_offsets import TransactionalOffsets
from penstock.model import NO_TOPIC_ID, TopicPartition

CommittedOffset: TypeAlias = OffsetValue
_MS_PER_MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """What a member, or someone outside the group (no member id, generation -1), asks to be remembered."""

    member_id: str
    instance_id: str | None
    generation: int
    offsets: Mapping[TopicPartition, CommittedOffset]

    def records(self, group_id: str) -> list[GroupRecord]:
        return [
            GroupRecord(OffsetKey(group_id, partition.topic, partition.partition), offset)
            for partition, offset in self.offsets.items()
        ]


class Offsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, OffsetValue]]] = {}
        self._pending: dict[str, dict[TopicPartition, int]] = {}
        self._unread_since_ms: dict[tuple[str, str], int] = {}
        self._count = 0
        self.transactional = TransactionalOffsets()

    def __len__(self) -> int:
        return self._count

    def groups(self) -> Iterable[str]:
        return (*self._groups, *self.transactional.groups())

    def has(self, group_id: str) -> bool:
        """Whether the group has offsets, or will have some when what is appended is committed."""
        return group_id in self._groups or group_id in self._pending or self.transactional.has(group_id)

    # --- changes, in the order of the log

    def apply(self, key: OffsetKey, value: OffsetValue | None) -> None:
        """A record of an offset is committed."""
        self.transactional.replace(key)
        self._set(key, value)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker is committed."""
        if is_commit:
            for key, value in self.transactional.take(producer_id):
                self._set(key, value)
        else:
            self.transactional.drop(producer_id)

    def _set(self, key: OffsetKey, value: OffsetValue | None) -> None:
        if value is None:
            self._remove(key)
            return
        partitions = self._groups.setdefault(key.group_id, {}).setdefault(key.topic, {})
        if key.partition not in partitions:
            self._count += 1
        partitions[key.partition] = value

    def begin(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """A commit of these is on its way into the log."""
        pending = self._pending.setdefault(group_id, {})
        for partition in partitions:
            pending[partition] = pending.get(partition, 0) + 1

    def end(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """It has arrived (and was applied), or was refused."""
        pending = self._pending[group_id]
        for partition in partitions:
            pending[partition] -= 1
            if not pending[partition]:
                del pending[partition]
        if not pending:
            del self._pending[group_id]

    def _remove(self, key: OffsetKey) -> None:
        topics = self._groups.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        self._count -= 1
        if not partitions:
            del topics[key.topic]
            self._unread_since_ms.pop((key.group_id, key.topic), None)
            if not topics:
                del self._groups[key.group_id]

    # --- questions

    def get(self, group_id: str, partition: TopicPartition, image: ClusterImage) -> CommittedOffset | None:
        topics = self._groups.get(group_id, {})
        value = topics.get(partition.topic, {}).get(partition.partition)
        return value if value is not None and _is_of(image, partition.topic, value) else None

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, image: ClusterImage
    ) -> dict[TopicPartition, CommittedOffset]:
        """Those that there are; None asks for all of the group."""
        if partitions is None:
            return {
                TopicPartition(topic, index): value
                for topic, values in self._groups.get(group_id, {}).items()
                for index, value in values.items()
                if _is_of(image, topic, value)
            }
        found = ((partition, self.get(group_id, partition, image)) for partition in partitions)
        return {partition: value for partition, value in found if value is not None}

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Those that a transaction may be about to commit."""
        return {TopicPartition(key.topic, key.partition) for key in self.transactional.keys(group_id)}

    def all(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        """Group, topic, partition and offset, of all groups; for metrics."""
        for group_id, topics in self._groups.items():
            for topic, values in topics.items():
                for index, value in values.items():
                    yield group_id, topic, index, value

    # --- forgetting

    def tombstones(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> list[GroupRecord]:
        """What makes the log forget these, or all of the group; also those still on their way into it."""
        known = dict.fromkeys(
            TopicPartition(topic, index)
            for topic, values in self._groups.get(group_id, {}).items()
            for index in values
        )
        known.update(dict.fromkeys(self._pending.get(group_id, ())))
        known.update(dict.fromkeys(self.unstable(group_id)))
        chosen = (
            known if partitions is None else [partition for partition in partitions if partition in known]
        )
        return [_tombstone(group_id, partition.topic, partition.partition) for partition in chosen]

    def of_lost_topics(self, image: ClusterImage, topics: Iterable[str]) -> list[GroupRecord]:
        """Tombstones for the offsets of these topics that belong to no topic there is."""
        return [
            _tombstone(group_id, topic, index)
            for group_id, own in self._groups.items()
            for topic in topics
            for index, value in own.get(topic, {}).items()
            if not _is_of(image, topic, value)
        ]

    def expired(
        self,
        group_id: str,
        empty_since_ms: int | None,
        reads: Callable[[str], bool] | None,
        retention_minutes: int,
        config: BrokerConfig,
        image: ClusterImage,
        now_ms: int,
    ) -> list[GroupRecord]:
        """Tombstones for what the group need not remember any more; nothing that a transaction is about to commit
        anew. `reads` tells of a group with members."""
        tombstones = []
        unstable = self.unstable(group_id)
        for topic, values in self._groups.get(group_id, {}).items():
            since_ms = empty_since_ms or 0
            kept_ms = _kept_ms(topic, retention_minutes * _MS_PER_MINUTE, config, image)
            if reads is not None and reads(topic):
                self._unread_since_ms.pop((group_id, topic), None)
                kept_ms = None
            elif reads is not None:
                since_ms = self._unread_since_ms.setdefault((group_id, topic), now_ms)
            for index, value in values.items():
                over = kept_ms is not None and max(since_ms, value.commit_timestamp_ms) + kept_ms <= now_ms
                if (over or not _is_of(image, topic, value)) and TopicPartition(topic, index) not in unstable:
                    tombstones.append(_tombstone(group_id, topic, index))
        return tombstones


def _is_of(image: ClusterImage, topic: str, value: OffsetValue) -> bool:
    """Whether the topic the offset was committed for is still there. A record of old has no id: the name counts."""
    if value.topic_id == NO_TOPIC_ID:
        return True
    present = image.topics.get(topic)
    return present is not None and present.id == value.topic_id


def _kept_ms(topic: str, retention_ms: int, config: BrokerConfig, image: ClusterImage) -> int | None:
    """How long an offset that nobody uses is kept; None for ever, as the records it points to."""
    present = image.topics.get(topic)
    if present is None:
        return retention_ms
    settings = TopicConfig(config, present.configs)
    topic_retention_ms = settings[RETENTION_MS]
    if topic_retention_ms < 0 or CleanupPolicy.DELETE not in settings[CLEANUP_POLICY]:
        return None
    return max(retention_ms, topic_retention_ms)


def _tombstone(group_id: str, topic: str, partition: int) -> GroupRecord:
    return GroupRecord(OffsetKey(group_id, topic, partition), None)
