"""Planted bugs of consumer groups and committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from planting import planted_in_broker

from penstock.errors import ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.consumer.state import ConsumerState
from penstock.groups.group import GroupStep
from penstock.groups.loading import Loading
from penstock.groups.offsets import OffsetCommit
from penstock.groups.record_codec import decode_record
from penstock.groups.records import ClassicGroupValue, GroupRecord, OffsetKey
from penstock.groups.shard import GroupShard
from penstock.groups.shard_state import ShardState
from penstock.state_log.appender import Appender
from penstock.state_log.shard import Waiter


@planted_in_broker("I12")
def offsets_are_visible_before_they_are_committed() -> AbstractContextManager[Any]:
    """OffsetFetch returns a commit that a power loss can take back."""
    commit = GroupShard.commit

    def show(self: GroupShard, request: OffsetCommit, response: Waiter) -> None:
        for key, offset in request.offsets.items():
            self.offsets.apply(key, offset)
        commit(self, request, response)

    return patch.object(GroupShard, "commit", show)


@planted_in_broker("I12")
def group_records_are_answered_before_the_flush() -> AbstractContextManager[Any]:
    """A commit or a join is acknowledged as soon as its batch is in the page cache."""
    append = Appender._append

    def answer(self: Appender[Any], batch: Any, *rest: Any) -> None:
        append(self, batch, *rest)
        self._finish(batch, None)

    return patch.object(Appender, "_append", answer)


@planted_in_broker("I12")
def offsets_are_not_appended() -> AbstractContextManager[Any]:
    """A commit changes the state in memory only."""
    add = Appender.add_encoded

    def forget(self: Appender[Any], records: Sequence[tuple[bytes, bytes | None]], done: Any) -> None:
        is_commit = bool(records) and _is_offset(*records[0])
        add(self, [] if is_commit else records, done)

    return patch.object(Appender, "add_encoded", forget)


@planted_in_broker("I12")
def groups_answer_before_they_are_loaded() -> AbstractContextManager[Any]:
    """A coordinator serves a group before its log is loaded."""

    async def run(self: Loading) -> ShardState:
        return ShardState(self._context)

    return patch.object(Loading, "run", run)


def _changed_in_replay(
    change: Callable[[ClassicGroupValue], ClassicGroupValue],
) -> AbstractContextManager[Any]:
    """Change the records of classic groups that are read at a start of a coordinator."""
    apply = ShardState.apply

    def apply_changed(self: ShardState, record: GroupRecord) -> None:
        value = record.value
        changed = change(value) if isinstance(value, ClassicGroupValue) else value
        apply(self, GroupRecord(record.key, changed))

    return patch.object(ShardState, "apply", apply_changed)


@planted_in_broker("generation")
def generation_begins_anew_after_a_restart() -> AbstractContextManager[Any]:
    return _changed_in_replay(lambda value: replace(value, generation=0))


@planted_in_broker("restart")
def assignment_is_not_kept() -> AbstractContextManager[Any]:
    """A classic group keeps its members over a restart, but not their assignment."""

    def forget(value: ClassicGroupValue) -> ClassicGroupValue:
        return replace(value, members=tuple(replace(member, assignment=b"") for member in value.members))

    return _changed_in_replay(forget)


@planted_in_broker("one owner")
def revoked_partition_is_given_away_at_once() -> AbstractContextManager[Any]:
    """A partition is assigned again before its owner has revoked it."""

    def is_free(self: ConsumerState, member: ConsumerMember) -> Callable[..., bool]:
        return lambda *_: True

    return patch.object(ConsumerState, "_is_free_for", is_free)


@planted_in_broker("I13")
def expired_member_keeps_its_partitions() -> AbstractContextManager[Any]:
    """A silent member of the consumer protocol is not removed from its group."""

    def tick(self: ConsumerGroup, now_ms: int) -> GroupStep:
        while self._deadlines.pop(now_ms) is not None:
            pass
        return GroupStep()

    return patch.object(ConsumerGroup, "tick", tick)


@planted_in_broker("fencing")
def commits_of_an_old_generation_are_taken() -> AbstractContextManager[Any]:
    """A member of an earlier generation overwrites a commit of its successor."""

    def check(
        self: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *_: object
    ) -> ErrorCode:
        return self._members.check(member_id, instance_id) if member_id else ErrorCode.none

    return patch.object(ClassicGroup, "_check_commit", check)


@planted_in_broker("fencing")
def commits_skip_the_check_of_the_member() -> AbstractContextManager[Any]:
    """An offset commit outside of a transaction is appended for any member and generation."""
    check = GroupShard.check_commit

    def skip(self: GroupShard, commit: OffsetCommit, now_ms: int, *, is_transactional: bool = False) -> None:
        if is_transactional or commit.group_id not in self.groups:
            check(self, commit, now_ms, is_transactional=is_transactional)
        else:
            self.check_writable()

    return patch.object(GroupShard, "check_commit", skip)


@planted_in_broker("I12")
def deleted_offsets_come_back() -> AbstractContextManager[Any]:
    """A deleted offset is removed from memory, but not from the log."""
    forget = GroupShard._forget_offsets

    def apply_only(self: GroupShard, tombstones: list[GroupRecord]) -> Any:
        for record in tombstones:
            self.apply(record)
        return forget(self, [])

    return patch.object(GroupShard, "_forget_offsets", apply_only)


def _is_offset(key: bytes, value: bytes | None) -> bool:
    return value is not None and isinstance(decode_record(key, value).key, OffsetKey)
