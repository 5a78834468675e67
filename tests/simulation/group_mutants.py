"""Planted bugs of consumer groups and committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from planting import planted_in_broker

from penstock.errors import ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.members import Member
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.consumer.state import ConsumerState
from penstock.groups.context import ShardState
from penstock.groups.group import Step
from penstock.groups.loading import Loading
from penstock.groups.offsets import OffsetCommit
from penstock.groups.records import ClassicGroupValue, GroupRecord, OffsetKey
from penstock.groups.shard import GroupShard
from penstock.state_log.appender import Appender


@planted_in_broker("I12")
def offsets_are_visible_before_they_are_committed() -> AbstractContextManager[Any]:
    """OffsetFetch returns a commit that a power loss can take back."""
    commit = GroupShard.commit

    def show(self: GroupShard, group_id: str, request: OffsetCommit) -> asyncio.Future[None]:
        for partition, offset in request.offsets.items():
            self.offsets.apply(OffsetKey(group_id, partition.topic, partition.partition), offset)
        return commit(self, group_id, request)

    return patch.object(GroupShard, "commit", show)


@planted_in_broker("I12")
def group_records_are_answered_before_the_flush() -> AbstractContextManager[Any]:
    """A commit or a join is acknowledged as soon as its batch is in the page cache."""
    append = Appender._append

    def answer(self: Appender, batch: Any, *rest: Any) -> None:
        append(self, batch, *rest)
        self._finish(batch, None)

    return patch.object(Appender, "_append", answer)


@planted_in_broker("I12")
def offsets_are_not_appended() -> AbstractContextManager[Any]:
    """A commit changes the state in memory only."""
    add = Appender.add

    def forget(self: Appender, records: Sequence[GroupRecord], done: Any) -> None:
        is_commit = bool(records) and isinstance(records[0].key, OffsetKey) and records[0].value is not None
        add(self, [] if is_commit else records, done)

    return patch.object(Appender, "add", forget)


@planted_in_broker("I12")
def groups_answer_before_they_are_loaded() -> AbstractContextManager[Any]:
    """A coordinator serves a group before its log is loaded."""

    async def run(self: Loading) -> ShardState:
        return ShardState()

    return patch.object(Loading, "run", run)


@planted_in_broker("generation")
def generation_begins_anew_after_a_restart() -> AbstractContextManager[Any]:
    restore = ClassicGroup.restore.__func__  # type: ignore[attr-defined]

    def forget(cls: type[ClassicGroup], group_id: str, value: ClassicGroupValue, *rest: Any) -> ClassicGroup:
        return restore(cls, group_id, replace(value, generation=0), *rest)  # type: ignore[no-any-return]

    return patch.object(ClassicGroup, "restore", classmethod(forget))


@planted_in_broker("restart")
def assignment_is_not_kept() -> AbstractContextManager[Any]:
    """A classic group keeps its members over a restart, but not their assignment."""
    saved = Member.saved

    def forget(self: Member, protocol_name: str | None) -> Any:
        return replace(saved(self, protocol_name), assignment=b"")

    return patch.object(Member, "saved", forget)


@planted_in_broker("one owner")
def revoked_partition_is_given_away_at_once() -> AbstractContextManager[Any]:
    """A partition is assigned again before its owner has revoked it."""

    def is_free(self: ConsumerState, member: ConsumerMember) -> Callable[..., bool]:
        return lambda *_: True

    return patch.object(ConsumerState, "_is_free_for", is_free)


@planted_in_broker("I13")
def expired_member_keeps_its_partitions() -> AbstractContextManager[Any]:
    """A silent member of the consumer protocol is not removed from its group."""

    def tick(self: ConsumerGroup, now_ms: int) -> Step:
        while self._timers.pop(now_ms) is not None:
            pass
        return Step()

    return patch.object(ConsumerGroup, "tick", tick)


@planted_in_broker("fencing")
def commits_of_an_old_generation_are_taken() -> AbstractContextManager[Any]:
    """A member of an earlier generation overwrites a commit of its successor."""

    def check(
        self: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *_: object
    ) -> ErrorCode:
        return self._members.check(member_id, instance_id) if member_id else ErrorCode.none

    return patch.object(ClassicGroup, "_check_commit", check)


@planted_in_broker("I12")
def deleted_offsets_come_back() -> AbstractContextManager[Any]:
    """A deleted offset is removed from memory, but not from the log."""
    forget = GroupShard._forget_offsets

    def apply_only(self: GroupShard, tombstones: list[GroupRecord]) -> Any:
        for record in tombstones:
            self.apply(record)
        return forget(self, [])

    return patch.object(GroupShard, "_forget_offsets", apply_only)
