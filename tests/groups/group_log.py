"""The records of one group, and the group that a restart restores from them: from all records, and from a
compacted log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.members import ClassicMembers
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.context import GroupContext
from penstock.groups.group import CoordinatedGroup, GroupState
from penstock.groups.record_codec import decode_record, encode_record
from penstock.groups.records import ClassicGroupValue, GroupRecord
from penstock.groups.shard_groups import ShardGroups

GROUP = "g"


def durable(group: CoordinatedGroup | None) -> object:
    """State that a restart must restore, with everything that is derived from it."""
    if group is None:
        return None
    if isinstance(group, ClassicGroup):
        return group.saved()
    assert isinstance(group, ConsumerGroup)
    kept = group.remembered
    members = {member_id: (member.value, member.current) for member_id, member in kept.members.items()}
    derived = kept.said_bytes, kept.classic_members, kept._instances, +kept._patterns, kept._owners
    return kept.epoch, kept.assignment_epoch, members, kept.targets, kept._metadata_hash, derived


def check_totals(members: ClassicMembers) -> None:
    """Compare the totals of a classic group with those of the same members, added one by one."""
    again = ClassicMembers()
    for member in members:
        again.add(member)
    assert (members._supporters, members._by_instance) == (again._supporters, again._by_instance)
    assert members.held_bytes == again.held_bytes + sum(map(len, members._pending))


def check_restored_members(group: ClassicGroup) -> None:
    """Check that members have exactly the protocol and the metadata of the record."""
    value = group.saved()
    check_totals(group._members)
    for member, recorded in zip(group._members, value.members, strict=True):
        assert member.protocols == ((value.protocol_name, recorded.subscription),)


class GroupLog:
    def __init__(self, context: object) -> None:
        """`context` has the settings, the image and the clock of a `GroupContext`."""
        self.records: list[GroupRecord] = []
        self._context = cast(GroupContext, context)
        self._recorded: ClassicGroupValue | None = None
        """Value of the classic group when it was Stable or Empty last."""
        self._last: CoordinatedGroup | None = None
        self._was_empty = True

    def append(self, records: Iterable[GroupRecord]) -> None:
        self.records += [decode_record(*encode_record(record)) for record in records]

    def compact(self, end: int, *, keeps_tombstones: bool) -> None:
        """Compact the first `end` records as the log does."""
        self.records[:end] = newest(self.records[:end], keeps_tombstones=keeps_tombstones)

    def restart(self, now_ms: int) -> CoordinatedGroup | None:
        """Return the group of a coordinator that starts now."""
        self._last = None
        return self._restored(self.records, now_ms)

    def check(self, live: CoordinatedGroup, now_ms: int) -> None:
        """Compare the live group with the one that a restart would restore now."""
        expected = self._expected(live)
        self._was_empty = live.is_empty
        for records in (
            self.records,
            newest(self.records, keeps_tombstones=True),
            newest(self.records, keeps_tombstones=False),
            in_parts(self.records),
        ):
            restored = self._restored(records, now_ms)
            assert durable(restored) == expected
            if isinstance(restored, ClassicGroup):
                check_restored_members(restored)

    def _restored(self, records: Iterable[GroupRecord], now_ms: int) -> CoordinatedGroup | None:
        groups = ShardGroups(self._context)
        for record in records:
            groups.apply(record)
        group = groups.get(GROUP)
        if group is not None:
            group.loaded(self._context.image, now_ms)
        return group

    def _expected(self, live: CoordinatedGroup) -> object:
        """Return the durable part of a live group: for a classic group in a rebalance, its last recorded
        generation.
        """
        last, self._last = self._last, live
        if not isinstance(live, ClassicGroup):
            return None if live.is_blank else durable(live)
        if isinstance(last, ConsumerGroup):  # converted, or replaced when it had no members
            self._recorded = None if last.is_blank or self._was_empty else live.saved()
        elif live.state in (GroupState.STABLE, GroupState.EMPTY):
            self._recorded = live.saved() if live.generation > 0 else None
        return self._recorded


def newest(records: Iterable[GroupRecord], *, keeps_tombstones: bool) -> list[GroupRecord]:
    """Return the newest record of each key, in log order."""
    kept: dict[object, GroupRecord] = {}
    for record in records:
        kept.pop(record.key, None)
        kept[record.key] = record
    return [record for record in kept.values() if keeps_tombstones or record.value is not None]


def in_parts(records: Sequence[GroupRecord]) -> list[GroupRecord]:
    """Return the records that a replay applies if it reads the log in three parts: the newest of each key in
    each part.
    """
    size = len(records) // 3 + 1
    parts = [records[start : start + size] for start in range(0, len(records), size)]
    return [record for part in parts for record in newest(part, keeps_tombstones=True)]
