"""Recorded state of a share group: members, epochs, target assignment, and the topics with share states.

`apply` changes the state by one record, live and in a replay. `take_records` returns the records of a step.
Used by `ShareGroup` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, cast

from penstock.cluster.image import ClusterImage
from penstock.groups.records import (
    Assignment,
    GroupRecord,
    Key,
    ShareCurrentKey,
    ShareCurrentValue,
    ShareGroupKey,
    ShareGroupValue,
    ShareMemberKey,
    ShareMemberValue,
    ShareTargetEpochKey,
    ShareTargetMemberKey,
    ShareTopic,
    ShareTopicsKey,
    ShareTopicsValue,
    TargetEpochValue,
    TargetMemberValue,
    Value,
)
from penstock.groups.share.assignor import assign_shared
from penstock.model import TopicId

NOTHING_YET: Final = ShareCurrentValue(0, 0, {})
_NO_MEMBER: Final = ShareMemberValue(None, "", "", frozenset())
_NO_TOPICS: Final = ShareTopicsValue({}, {}, {})
_HASH_BYTES: Final = 8


@dataclass(slots=True)
class ShareMember:
    member_id: str
    value: ShareMemberValue = _NO_MEMBER
    current: ShareCurrentValue = NOTHING_YET


class ShareState:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.topics: ShareTopicsValue = _NO_TOPICS
        self.image: ClusterImage | None = None
        self._metadata_hash = 0
        self._records: list[GroupRecord] = []

    def see(self, image: ClusterImage) -> None:
        self.image = image

    def take_records(self) -> list[GroupRecord]:
        """Remove and return the records of all changes since the last call."""
        records, self._records = self._records, []
        return records

    def change(self, key: Key, value: Value | None) -> None:
        record = GroupRecord(key, value)
        self.apply(record)
        self._records.append(record)

    def apply(self, record: GroupRecord) -> None:
        key, value = record
        if isinstance(key, ShareMemberKey):
            if value is None:
                self.members.pop(key.member_id, None)
            else:
                self._member(key.member_id).value = cast(ShareMemberValue, value)
        elif isinstance(key, ShareCurrentKey):
            if value is not None:
                self._member(key.member_id).current = cast(ShareCurrentValue, value)
        elif isinstance(key, ShareTargetMemberKey):
            if value is None:
                self.targets.pop(key.member_id, None)
            else:
                self.targets[key.member_id] = cast(TargetMemberValue, value).assignment
        elif isinstance(key, ShareTargetEpochKey):
            self.assignment_epoch = 0 if value is None else cast(TargetEpochValue, value).assignment_epoch
        elif isinstance(key, ShareGroupKey):
            if value is not None:
                group = cast(ShareGroupValue, value)
                self.epoch, self._metadata_hash = group.epoch, group.metadata_hash
        elif isinstance(key, ShareTopicsKey):
            self.topics = _NO_TOPICS if value is None else cast(ShareTopicsValue, value)

    def _member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ShareMember(member_id)
        return member

    # --- members

    def set_value(self, member_id: str, value: ShareMemberValue) -> ShareMember:
        known = self.members.get(member_id)
        if known is None or known.value != value:
            self.change(ShareMemberKey(self.group_id, member_id), value)
        return self.members[member_id]

    def set_current(self, member: ShareMember, value: ShareCurrentValue) -> None:
        if member.current != value:
            self.change(ShareCurrentKey(self.group_id, member.member_id), value)

    def remove(self, member_id: str) -> None:
        self.change(ShareCurrentKey(self.group_id, member_id), None)
        self.change(ShareTargetMemberKey(self.group_id, member_id), None)
        self.change(ShareMemberKey(self.group_id, member_id), None)

    # --- epochs

    @property
    def subscribed(self) -> frozenset[str]:
        return frozenset().union(*{member.value.subscribed_topics for member in self.members.values()})

    def update_target(self, changed: bool) -> None:
        """Begin a new epoch with a new target assignment if `changed` (members or subscriptions have changed)
        or if the topics have.
        """
        metadata_hash = self._hash()
        if changed or (self.members and metadata_hash != self._metadata_hash):
            self.begin_epoch(metadata_hash)
        elif self.assignment_epoch < self.epoch:
            self._assign()

    def begin_epoch(self, metadata_hash: int | None = None) -> int:
        """Begin a new epoch and return it."""
        value = ShareGroupValue(self.epoch + 1, self._hash() if metadata_hash is None else metadata_hash)
        self.change(ShareGroupKey(self.group_id), value)
        self._assign()
        return self.epoch

    def _assign(self) -> None:
        counts = self._counts()
        image = self.image
        topics_of = {
            member.member_id: frozenset(
                topic.id
                for name in member.value.subscribed_topics
                if image is not None and (topic := image.topics.get(name)) is not None and topic.id in counts
            )
            for member in self.members.values()
        }
        for member_id, assignment in assign_shared(topics_of, counts, self.targets).items():
            if self.targets.get(member_id) != assignment:
                self.change(ShareTargetMemberKey(self.group_id, member_id), TargetMemberValue(assignment))
        self.change(ShareTargetEpochKey(self.group_id), TargetEpochValue(self.epoch))

    def _counts(self) -> dict[TopicId, int]:
        """Number of partitions of each topic that have a share state, counted from partition 0 without a gap."""
        counts = {}
        for topic_id, topic in self.topics.initialized.items():
            count = 0
            while count in topic.partitions:
                count += 1
            if self.image is None or topic_id in self.image.topic_names:
                counts[topic_id] = count
        return counts

    def _hash(self) -> int:
        """Hash of the subscribed topics and their partitions with a share state."""
        digest = blake2b(digest_size=_HASH_BYTES)
        counts = self._counts()
        for name in sorted(self.subscribed):
            topic = None if self.image is None else self.image.topics.get(name)
            if topic is not None:
                digest.update(f"{name} {topic.id} {counts.get(topic.id, 0)},".encode())
        return int.from_bytes(digest.digest(), "big", signed=True)

    # --- share states

    def uninitialized(self, topics: Collection[str]) -> dict[TopicId, ShareTopic]:
        """Partitions of these topics that have no share state."""
        missing = {}
        for name in sorted(topics):
            topic = None if self.image is None else self.image.topics.get(name)
            if topic is None:
                continue
            known = self.topics.initialized.get(topic.id)
            assert self.image is not None
            partitions = frozenset(range(len(self.image.shown(topic).partitions)))
            partitions -= known.partitions if known else frozenset()
            if partitions:
                missing[topic.id] = ShareTopic(name, partitions)
        return missing

    def set_topics(
        self,
        initialized: Mapping[TopicId, ShareTopic],
        initializing: Mapping[TopicId, ShareTopic] | None = None,
    ) -> None:
        value = ShareTopicsValue(dict(initializing or {}), dict(initialized), {})
        if value != self.topics:
            self.change(ShareTopicsKey(self.group_id), value)

    def tombstones(self) -> list[GroupRecord]:
        keys: list[Key] = [
            *(ShareCurrentKey(self.group_id, member_id) for member_id in self.members),
            *(ShareTargetMemberKey(self.group_id, member_id) for member_id in self.targets),
            ShareTargetEpochKey(self.group_id),
            *(ShareMemberKey(self.group_id, member_id) for member_id in self.members),
            ShareTopicsKey(self.group_id),
            ShareGroupKey(self.group_id),
        ]
        return [GroupRecord(key, None) for key in keys]
