"""Committed offsets of the groups of one shard: visible once committed, removed when expired (KIP-211).

A commit is pending from its append until its batch is committed, and a transactional commit until its
transaction is committed; pending offsets are not returned. An offset belongs to a topic id: if that topic was
deleted, the offset is never returned, even if a topic of the same name was created. Pure: times and the
cluster image are arguments. Called by `shard` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from penstock.cluster.image import ClusterImage, TopicImage
from penstock.config import CLEANUP_POLICY, RETENTION_MS, BrokerConfig, CleanupPolicy, TopicConfig
from penstock.groups.records import GroupRecord, OffsetKey, OffsetValue
from penstock.groups.transactional_offsets import TransactionalOffsets
from penstock.model import NO_TOPIC_ID, Offset, TopicPartition

CommittedOffset: TypeAlias = OffsetValue
_MS_PER_MINUTE = 60_000


class OffsetCommit:
    """Offsets that a member commits for its group. A client outside the group commits with no member id and
    generation -1.
    """

    __slots__ = ("generation", "group_id", "instance_id", "member_id", "offsets")

    def __init__(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[OffsetKey, CommittedOffset],
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.instance_id = instance_id
        self.generation = generation
        self.offsets = offsets
        """Offsets by key; all keys have the group id of the commit."""


class Offsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, OffsetValue]]] = {}
        self._pending: dict[str, dict[OffsetCommit, None]] = {}
        self._unread_since_ms: dict[tuple[str, str], int] = {}
        self._count = 0
        self.transactional = TransactionalOffsets()

    def __len__(self) -> int:
        return self._count

    def groups(self) -> Iterable[str]:
        return (*self._groups, *self.transactional.groups())

    def has(self, group_id: str) -> bool:
        """True if the group has committed or pending offsets."""
        return group_id in self._groups or group_id in self._pending or self.transactional.has(group_id)

    # --- changes, in the order of the log

    def apply(self, key: OffsetKey, value: OffsetValue | None) -> None:
        """Apply a committed record of an offset."""
        self.transactional.replace(key)
        self._set(key, value)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply a committed transaction marker."""
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

    def begin(self, commit: OffsetCommit) -> None:
        """Mark a commit as pending."""
        self._pending.setdefault(commit.group_id, {})[commit] = None

    def end(self, commit: OffsetCommit) -> None:
        """End a pending commit, which was either committed and applied, or refused."""
        pending = self._pending[commit.group_id]
        del pending[commit]
        if not pending:
            del self._pending[commit.group_id]

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

    # --- queries

    def get(self, group_id: str, partition: TopicPartition, image: ClusterImage) -> CommittedOffset | None:
        topics = self._groups.get(group_id, {})
        value = topics.get(partition.topic, {}).get(partition.partition)
        return (
            value
            if value is not None and _is_of(image, partition.topic, partition.partition, value)
            else None
        )

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, image: ClusterImage
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of these partitions, or of all partitions if `partitions` is None.
        Partitions without a committed offset are left out.
        """
        if partitions is None:
            return {
                TopicPartition(topic, index): value
                for topic, values in self._groups.get(group_id, {}).items()
                for index, value in values.items()
                if _is_of(image, topic, index, value)
            }
        found = ((partition, self.get(group_id, partition, image)) for partition in partitions)
        return {partition: value for partition, value in found if value is not None}

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Partitions for which an open transaction has a pending offset."""
        return {TopicPartition(key.topic, key.partition) for key in self.transactional.keys(group_id)}

    def all(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        """Yield group id, topic, partition and committed offset for all groups, for metrics."""
        for group_id, topics in self._groups.items():
            for topic, values in topics.items():
                for index, value in values.items():
                    yield group_id, topic, index, value

    # --- expiry

    def tombstones(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> list[GroupRecord]:
        """Tombstones for the offsets of these partitions, or of all partitions of the group, including
        pending offsets.
        """
        known = dict.fromkeys(
            TopicPartition(topic, index)
            for topic, values in self._groups.get(group_id, {}).items()
            for index in values
        )
        known.update(
            (TopicPartition(key.topic, key.partition), None)
            for commit in self._pending.get(group_id, ())
            for key in commit.offsets
        )
        known.update(dict.fromkeys(self.unstable(group_id)))
        chosen = (
            known if partitions is None else [partition for partition in partitions if partition in known]
        )
        return [_tombstone(group_id, partition.topic, partition.partition) for partition in chosen]

    def of_lost_topics(self, image: ClusterImage, topics: Iterable[str]) -> list[GroupRecord]:
        """Tombstones for offsets of these topics whose topic id or partition no longer exists."""
        return [
            _tombstone(group_id, topic, index)
            for group_id, own in self._groups.items()
            for topic in topics
            for index, value in own.get(topic, {}).items()
            if not _is_of(image, topic, index, value)
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
        """Tombstones for the expired offsets of the group, except offsets that an open transaction may
        change. `reads` tells whether a member reads a topic; None if the group has no members.
        """
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
                if (over or not _is_of(image, topic, index, value)) and TopicPartition(
                    topic, index
                ) not in unstable:
                    tombstones.append(_tombstone(group_id, topic, index))
        return tombstones


def _is_of(image: ClusterImage, topic: str, index: int, value: OffsetValue) -> bool:
    """True if the topic and the partition of the offset still exist. An offset of an old record has no topic
    id and applies to any topic of the name.

    A partition that was created again begins above the offsets of the removed one.
    """
    present = image.topics.get(topic)
    if present is not None and (present.has_removed(index) or _is_below_start(present, index, value.offset)):
        return False
    if value.topic_id == NO_TOPIC_ID:
        return True
    return present is not None and present.id == value.topic_id


def _is_below_start(topic: TopicImage, index: int, offset: int) -> bool:
    """True for an offset of a removed partition whose index was used again. Clients may commit negative offsets."""
    first = first_offset(topic, index)
    return first > 0 and offset < first


def first_offset(topic: TopicImage, index: int) -> Offset:
    """First offset that a partition ever had: above 0 if it was created again."""
    return topic.partitions[index].first_offset if index < len(topic.partitions) else Offset(0)


def _kept_ms(topic: str, retention_ms: int, config: BrokerConfig, image: ClusterImage) -> int | None:
    """Retention of an unused offset in milliseconds, at least that of the topic's records; None if those are
    kept forever.
    """
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
