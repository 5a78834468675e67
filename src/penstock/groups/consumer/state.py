"""The recorded state of a consumer group, and its transitions from one epoch to the next.

Everything that is recorded changes by `apply`, live and in a replay: a live change is a record that is
applied at once and returned by `take_records`. A replay of the records therefore restores the state, with the
totals and owners that `apply` derives. Invariants: a partition is assigned to, or being revoked by, at most
one member (`_owners`); group, target and member epochs never decrease; after every step the target belongs to
the group epoch. Used by `ConsumerGroup` and its parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b

from penstock.cluster.image import ClusterImage, TopicImage
from penstock.config import ServerAssignor
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer.assignors import ASSIGNORS, SubscribedMember
from penstock.groups.consumer.member import NOTHING_SAID, NOTHING_YET, ConsumerMember, said_bytes
from penstock.groups.consumer.reconciliation import IsFree, reconcile
from penstock.groups.consumer.regexes import Regexes
from penstock.groups.records import (
    Assignment,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupRecord,
    Key,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
    Value,
)
from penstock.groups.settings import GroupSettings
from penstock.model import TopicId

_HASH_BYTES = 8


class ConsumerState:
    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self._settings = settings
        self.epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.image = ClusterImage("")
        self.topics: frozenset[str] = frozenset()
        """Topics to which members subscribe, by name or by regular expression."""
        self.said_bytes = 0
        self.classic_members = 0
        self._metadata_hash = 0
        self._instances: dict[str, str] = {}
        self._patterns: Counter[str] = Counter()
        self._owners: dict[TopicId, dict[int, str]] = {}
        self._regexes = Regexes()
        self._is_checked = False
        self._records: list[GroupRecord] = []

    def take_records(self) -> list[GroupRecord]:
        """Remove and return the records of all changes since the last call."""
        records, self._records = self._records, []
        return records

    def apply(self, record: GroupRecord) -> None:
        """Change the state according to a record."""
        match record.key, record.value:
            case ConsumerGroupKey(), ConsumerGroupValue(epoch, metadata_hash):
                self.epoch, self._metadata_hash = epoch, metadata_hash
            case TargetEpochKey(), TargetEpochValue(assignment_epoch):
                self.assignment_epoch = assignment_epoch
            case TargetMemberKey(_, member_id), TargetMemberValue(assignment):
                self.targets[member_id] = assignment
            case TargetMemberKey(_, member_id), None:
                self.targets.pop(member_id, None)
            case CurrentAssignmentKey(_, member_id), CurrentAssignmentValue() as current:
                self._apply_current(self._recorded(member_id), current)
            case CurrentAssignmentKey(_, member_id), None if member_id in self.members:
                self._apply_current(self.members[member_id], NOTHING_YET)
            case ConsumerMemberKey(_, member_id), ConsumerMemberValue() as value:
                self._apply_value(self._recorded(member_id), value)
            case ConsumerMemberKey(_, member_id), None if member_id in self.members:
                self._apply_removal(self.members[member_id])

    def _recorded(self, member_id: str) -> ConsumerMember:
        """Return the member that a record refers to, created if necessary: in a compacted log any of its
        records may be the first.
        """
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(member_id, NOTHING_SAID)
        return member

    def _apply_value(self, member: ConsumerMember, value: ConsumerMemberValue) -> None:
        self._unlist(member)
        member.value = value
        self._list(member)

    def _apply_current(self, member: ConsumerMember, current: CurrentAssignmentValue) -> None:
        self._disown(member)
        member.current = current
        self._own(member)

    def _apply_removal(self, member: ConsumerMember) -> None:
        self._disown(member)
        self._unlist(member)
        del self.members[member.member_id]

    def loaded(self, image: ClusterImage) -> None:
        """Complete the state after all records of a replay were applied."""
        unknown = [member for member in self.members.values() if member.value is NOTHING_SAID]
        for member in unknown:  # The log is damaged: only the assignment of this member is left.
            self._apply_removal(member)
        self.see(image)
        self.topics = self._subscribed_by_all()

    # Members

    def check_room(self, value: ConsumerMemberValue, member: ConsumerMember | None) -> None:
        """Raise BrokerError if the group is full, or if the descriptions of its members would be too large
        with this one.
        """
        before = 0 if member is None else said_bytes(member.value)
        if member is None and len(self.members) >= self._settings.max_size:
            message = f"the group has the maximum of {self._settings.max_size} members"
            raise BrokerError(ErrorCode.group_max_size_reached, message)
        size = said_bytes(value)
        if size > before and self.said_bytes + size - before > self._settings.max_metadata_bytes:
            message = "the metadata of all members exceeds the maximum size"
            raise BrokerError(ErrorCode.group_max_size_reached, message)

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self._instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def add(self, member_id: str, value: ConsumerMemberValue) -> ConsumerMember:
        self._change(ConsumerMemberKey(self.group_id, member_id), value)
        return self.members[member_id]

    def set_value(self, member: ConsumerMember, value: ConsumerMemberValue) -> None:
        if value != member.value:
            self._change(ConsumerMemberKey(self.group_id, member.member_id), value)

    def set_current(self, member: ConsumerMember, current: CurrentAssignmentValue) -> None:
        if current != member.current:
            self._change(CurrentAssignmentKey(self.group_id, member.member_id), current)

    def set_target(self, member_id: str, assignment: Assignment) -> None:
        known = self.targets.get(member_id)
        if known is not assignment and known != assignment:
            self._change(TargetMemberKey(self.group_id, member_id), TargetMemberValue(assignment))

    def remove(self, member: ConsumerMember) -> None:
        self._change(CurrentAssignmentKey(self.group_id, member.member_id), None)
        if member.member_id in self.targets:
            self._change(TargetMemberKey(self.group_id, member.member_id), None)
        self._change(ConsumerMemberKey(self.group_id, member.member_id), None)

    def replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Replace a static member by one with another member id, which keeps the assignment."""
        target = self.targets.get(old.member_id, {})
        kept = replace(NOTHING_YET, assigned=old.assigned)
        self.remove(old)
        member = self.add(member_id, old.value)
        self.set_target(member_id, target)
        self.set_current(member, kept)
        return member

    def _list(self, member: ConsumerMember) -> None:
        """Add the member to the totals of the group."""
        value = member.value
        self.said_bytes += said_bytes(value)
        self.classic_members += value.classic is not None
        if value.subscribed_regex is not None:
            self._patterns[value.subscribed_regex] += 1
        if value.instance_id is not None:
            self._instances[value.instance_id] = member.member_id

    def _unlist(self, member: ConsumerMember) -> None:
        value = member.value
        self.said_bytes -= said_bytes(value)
        self.classic_members -= value.classic is not None
        if value.subscribed_regex is not None:
            self._patterns[value.subscribed_regex] -= 1
        if value.instance_id is not None and self._instances.get(value.instance_id) == member.member_id:
            del self._instances[value.instance_id]

    def is_free(self, topic: TopicId, partition: int) -> bool:
        return partition not in self._owners.get(topic, {})

    def _own(self, member: ConsumerMember) -> None:
        for topic, partition in _partitions(member.current):
            self._owners.setdefault(topic, {})[partition] = member.member_id

    def _disown(self, member: ConsumerMember) -> None:
        for topic, partition in _partitions(member.current):
            # In a replay of a compacted log, another member may have taken the partition already.
            owners = self._owners.get(topic, {})
            if owners.get(partition) == member.member_id:
                del owners[partition]
                if not owners:
                    del self._owners[topic]

    # Epochs

    def see(self, image: ClusterImage) -> None:
        """Set the cluster image. `update_target` checks whether the subscribed topics have changed in it."""
        if image is not self.image:
            self.image = image
            self._is_checked = False
            self._follow_regexes()

    def _follow_regexes(self) -> None:
        self._patterns = +self._patterns
        self._regexes.update(self.image.topics if self._patterns else (), self._patterns)

    def subscribed(self, value: ConsumerMemberValue) -> frozenset[str]:
        if not value.subscribed_regex:
            return value.subscribed_topics
        matching = self._regexes.topics(value.subscribed_regex)  # shared by all equal subscriptions
        return value.subscribed_topics | matching if value.subscribed_topics else matching

    def update_target(self, changed: bool) -> None:
        """Begin a new epoch with a new target assignment if `changed` (members or subscriptions have changed)
        or if the subscribed topics have.
        """
        if changed or self._topics_changed():
            self._start_epoch()
        elif self.assignment_epoch < self.epoch:
            self._assign()
        self._is_checked = True

    def _topics_changed(self) -> bool:
        return (
            not self._is_checked
            and bool(self.members)
            and self._hash_of(self._subscribed_by_all()) != self._metadata_hash
        )

    def _start_epoch(self) -> None:
        self._follow_regexes()
        self.topics = self._subscribed_by_all()
        value = ConsumerGroupValue(self.epoch + 1, self._hash_of(self.topics))
        self._change(ConsumerGroupKey(self.group_id), value)
        self._assign()

    def _assign(self) -> None:
        """Compute the target assignment of this epoch."""
        ids = {name: topic.id for name in self.topics if (topic := self.image.topics.get(name)) is not None}
        counts = {topic_id: len(self._shown(name).partitions) for name, topic_id in ids.items()}
        readers = {
            member.member_id: SubscribedMember(member.value.instance_id, topics)
            for member, topics in self._read_by(ids)
        }
        assigned = ASSIGNORS[self.assignor](readers, counts, self.targets)
        for member_id, assignment in assigned.items():
            self.set_target(member_id, assignment)
        self._change(TargetEpochKey(self.group_id), TargetEpochValue(self.epoch))

    def reconcile(self, member: ConsumerMember, owned: Assignment | None, rejoins: bool = False) -> None:
        """Reconcile a member with its target. With `rejoins`, the member owns nothing, whatever was assigned to it."""
        start = replace(NOTHING_YET, assigned=member.assigned) if rejoins else member.current
        target = self.targets.get(member.member_id, {})
        self.set_current(
            member, reconcile(start, target, self.assignment_epoch, self._is_free_for(member), owned)
        )

    def _is_free_for(self, member: ConsumerMember) -> IsFree:
        """Return a function that tests whether a partition is free for the member. Partitions that the member
        itself is revoking count as free.
        """
        member_id = member.member_id
        return lambda topic, partition: self._owners.get(topic, {}).get(partition, member_id) == member_id

    def by_name(self, assignment: Assignment) -> dict[str, frozenset[int]]:
        """Convert an assignment to topic names, without deleted topics."""
        names = self.image.topic_names
        return {names[topic_id]: numbers for topic_id, numbers in assignment.items() if topic_id in names}

    @property
    def assignor(self) -> ServerAssignor:
        """Return the assignor that most members request. Assignors that are no longer enabled do not count."""
        known = sorted(self._settings.assignors) or [ServerAssignor.UNIFORM]
        default = ServerAssignor.UNIFORM if ServerAssignor.UNIFORM in known else known[0]
        votes = Counter(member.value.server_assignor for member in self.members.values())
        return max(known, key=lambda assignor: (votes[assignor], assignor == default))

    def tombstones(self) -> list[GroupRecord]:
        keys: list[Key] = [
            *(CurrentAssignmentKey(self.group_id, member_id) for member_id in self.members),
            *(TargetMemberKey(self.group_id, member_id) for member_id in self.targets),
            TargetEpochKey(self.group_id),
            *(ConsumerMemberKey(self.group_id, member_id) for member_id in self.members),
            ConsumerGroupKey(self.group_id),
        ]
        return [GroupRecord(key, None) for key in keys]

    def _subscribed_by_all(self) -> frozenset[str]:
        subscriptions = {self.subscribed(member.value) for member in self.members.values()}
        return frozenset().union(*subscriptions)

    def _read_by(self, ids: Mapping[str, TopicId]) -> Iterator[tuple[ConsumerMember, frozenset[TopicId]]]:
        """Yield each member with its topics. Members with equal subscriptions share one set."""
        known: dict[frozenset[str], frozenset[TopicId]] = {}
        for member in self.members.values():
            names = self.subscribed(member.value)
            if names not in known:
                known[names] = frozenset(ids[name] for name in names if name in ids)
            yield member, known[names]

    def _shown(self, name: str) -> TopicImage:
        return self.image.shown(self.image.topics[name])

    def _hash_of(self, names: frozenset[str]) -> int:
        digest = blake2b(digest_size=_HASH_BYTES)
        for name in sorted(names):
            topic = self.image.topics.get(name)
            if topic is not None:
                digest.update(f"{name} {topic.id} {len(self.image.shown(topic).partitions)},".encode())
        return int.from_bytes(digest.digest(), "big", signed=True)

    def _change(self, key: Key, value: Value | None) -> None:
        record = GroupRecord(key, value)
        self.apply(record)
        self._records.append(record)


def _partitions(current: CurrentAssignmentValue) -> Iterator[tuple[TopicId, int]]:
    for part in (current.assigned, current.pending_revocation):
        for topic, numbers in part.items():
            for number in numbers:
                yield topic, number
