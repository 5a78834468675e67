"""The groups and committed offsets of one partition of `__consumer_offsets`, while this broker leads it.

A request becomes a step of its group: the state of the group changes at once, the records of the step are
appended, and the responses are sent when the records are committed. If the log refuses the records, the shard
closes and is loaded again. Offsets become visible when they are committed; a refused offset commit is an
error for its client only. While the partition is under min.insync.replicas, requests that would write get
COORDINATOR_NOT_AVAILABLE before a group decides anything; reads and heartbeats continue. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from penstock.cluster.image import ClusterImage, ImageChange
from penstock.config import OFFSETS_COMMIT_TIMEOUT_MS, OFFSETS_RETENTION_MINUTES
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.confirmation import Confirmation
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.context import GroupContext
from penstock.groups.group import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    CoordinatedGroup,
    GroupDescription,
    GroupStep,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    Result,
    SyncRequest,
    SyncResult,
    Ticket,
)
from penstock.groups.offsets import CommittedOffset, OffsetCommit, Offsets
from penstock.groups.record_codec import encode_offset, encode_offset_key
from penstock.groups.records import GroupRecord, OffsetKey, OffsetValue
from penstock.groups.shard_groups import no_group
from penstock.groups.shard_state import ShardState
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.requests import ShareRequests
from penstock.groups.transactional_commits import TransactionalCommits
from penstock.model import TopicPartition
from penstock.state_log.appender import Appender, is_stored
from penstock.state_log.shard import Shard, Waiter, ignore_outcome

MAX_STRING_LENGTH = 8_191
"""Maximum length of stored names in characters. UTF-8 needs at most 32,767 bytes for them, the maximum of a
Kafka string.
"""


class GroupShard(Shard[GroupRecord]):
    def __init__(
        self, partition: int, state: ShardState, appender: Appender[GroupRecord], context: GroupContext
    ) -> None:
        super().__init__(partition, appender, context)
        self.offsets = state.offsets
        self._groups = state.groups
        self._context = context
        self._confirmation = Confirmation(self, appender, context)
        self.transactional = TransactionalCommits(self, appender)
        self.share = ShareRequests(self, state.groups, context)
        for group_id, group in self._groups.items():
            self._schedule(group_id, group.next_deadline_ms)

    @property
    def groups(self) -> Mapping[str, CoordinatedGroup]:
        return self._groups

    # --- members

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        self.check_writable()
        _check_strings(request.member_id, request.instance_id, request.protocol_type, request.client_id)
        _check_strings(*(name for name, _ in request.protocols))
        group, step = self._groups.for_join(group_id)
        ticket = _ticket()
        step += group.join(request, ticket, self.now_ms())
        self.carry_out(group_id, step)
        return cast(JoinResult, await ticket)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncResult:
        self.check_writable()
        group = self._groups.get(group_id)
        if group is None:
            return SyncResult(ErrorCode.unknown_member_id)
        ticket = _ticket()
        self.carry_out(group_id, group.sync(request, ticket, self.now_ms()))
        return cast(SyncResult, await ticket)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        self.check_open()
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.unknown_member_id
        return group.heartbeat(member_id, instance_id, generation, self.now_ms())

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveResult:
        self.check_writable()
        group = self._groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.unknown_member_id, f"there is no group {group_id[:80]!r}")
        ticket = _ticket()
        self.carry_out(group_id, group.leave(members, ticket, self.now_ms()))
        return cast(LeaveResult, await ticket)

    async def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        self.check_open()
        if request.member_epoch <= 0:
            self._appender.check_replicas()  # The member joins or leaves; other heartbeats write little or nothing.
        _check_strings(request.member_id, request.instance_id, request.client_id)
        now_ms = self.now_ms()
        group, step = self._groups.for_consumer_heartbeat(group_id, request, now_ms)
        ticket = _ticket()
        step += group.consumer_heartbeat(request, self._context.image, ticket, now_ms)
        self.carry_out(group_id, step)
        return cast(ConsumerHeartbeatResult, await ticket)

    # --- offsets

    def commit(self, commit: OffsetCommit, response: Waiter) -> None:
        """Commit offsets. `response` is settled when they are committed, or gets a BrokerError. A receiver is
        used instead of a coroutine or future because this path is hot.
        """
        now_ms = self.now_ms()
        try:
            self.check_commit(commit, now_ms)
        except BrokerError as error:
            response.set_exception(error)
            return
        self.offsets.begin(commit)
        records = [(encode_offset_key(key), encode_offset(value)) for key, value in commit.offsets.items()]
        self._appender.add_encoded(records, partial(self._on_commit, commit, response))
        if not response.done():
            self._limit_wait(response, now_ms + self._context.config[OFFSETS_COMMIT_TIMEOUT_MS])

    def check_commit(self, commit: OffsetCommit, now_ms: int, *, is_transactional: bool = False) -> None:
        """Raise BrokerError if the commit is not allowed. Creates the group if a client outside of any group
        commits first.
        """
        self.check_writable()
        group = self._groups.get(commit.group_id)
        if group is None:
            # The member id is not checked: clients of the consumer protocol send one from the start, even if
            # they assign partitions by hand.
            if commit.generation >= 0:
                raise BrokerError(ErrorCode.illegal_generation, f"there is no group {commit.group_id[:80]!r}")
            group = self._groups.add_classic(commit.group_id)
        group.check_commit(
            commit.member_id,
            commit.instance_id,
            commit.generation,
            now_ms,
            is_transactional=is_transactional,
        )

    def fetch_offsets(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        partitions: Sequence[TopicPartition] | None,
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of these partitions, or of all partitions if `partitions` is None.
        Partitions without one are left out. `offsets.unstable` returns the partitions whose offsets an open
        transaction may change.
        """
        self.check_open()
        group = self._groups.get(group_id)
        if group is not None:
            group.check_fetch(member_id, member_epoch)
        elif member_epoch >= 0:
            raise no_group(group_id)
        return self.offsets.fetch(group_id, partitions, self._context.image)

    def confirmed(self) -> asyncio.Future[None]:
        """Future that is done when it is certain that no other broker coordinated this shard before the call."""
        return self._confirmation.begin()

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        group = self._existing(group_id)
        self._appender.check_replicas()
        errors = {
            partition: ErrorCode.group_subscribed_to_topic
            if not group.is_empty and group.reads(partition.topic)
            else ErrorCode.none
            for partition in partitions
        }
        free = [partition for partition, error in errors.items() if error is ErrorCode.none]
        await self._forget_offsets(self.offsets.tombstones(group_id, free))
        return errors

    def _on_commit(self, commit: OffsetCommit, response: Waiter, error: BrokerError | None) -> None:
        if is_stored(error):
            for key, offset in commit.offsets.items():
                self.offsets.apply(key, offset)
            self._context.counts.commits += 1
        if self._closed is None:
            self.offsets.end(commit)
            if not is_stored(error):
                self.drop_if_blank(commit.group_id)
        self.settle(response, error)

    def apply(self, record: GroupRecord) -> None:
        """Apply a committed record of an offset. Other records were applied when a group decided."""
        if isinstance(record.key, OffsetKey):
            self.offsets.apply(record.key, cast("OffsetValue | None", record.value))

    def _forget_offsets(self, tombstones: list[GroupRecord]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BrokerError | None) -> None:
            if is_stored(error):
                for record in tombstones:
                    self.apply(record)
            self.settle(future, error)

        self._appender.add(tombstones, done)
        return future

    def limit_wait(self, future: asyncio.Future[None]) -> None:
        self._limit_wait(future, self.now_ms() + self._context.config[OFFSETS_COMMIT_TIMEOUT_MS])

    # --- whole groups

    def describe(self, group_id: str) -> GroupDescription:
        return self._existing(group_id).describe()

    async def delete_group(self, group_id: str) -> None:
        group = self._existing(group_id)
        self._appender.check_replicas()
        if isinstance(group, ShareGroup):
            async with self.share.changing(group):
                await self.share.delete_states(group)
                self.share.check_unused(group)  # A consumer may have joined meanwhile.
                forgotten = self._forget(group_id)
            await forgotten
            return
        if not group.is_empty:
            raise BrokerError(
                ErrorCode.non_empty_group, f"group {group_id[:80]!r} has members; stop them first"
            )
        await self._forget(group_id)

    def _forget(self, group_id: str) -> asyncio.Future[None]:
        """Remove the group and its offsets. The group is gone from memory at once, so the shard closes if the
        log refuses the tombstones.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        records = [*self.offsets.tombstones(group_id), *self._groups.remove(group_id)]

        def done(error: BrokerError | None) -> None:
            if is_stored(error):
                for record in records:
                    self.apply(record)
            else:
                self._lose()
            self.settle(future, error)

        self._appender.add(records, done)
        return future

    # --- time and the cluster

    def _on_deadline(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is None:
            return
        deadline_ms, now_ms = group.next_deadline_ms, self.now_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self.carry_out(group_id, group.tick(now_ms))
        else:
            self._schedule(group_id, deadline_ms)

    def on_topics(self, change: ImageChange) -> None:
        """Handle topics that were created or deleted or have another number of partitions."""
        before, after = change.before, change.after
        lost = [name for name in change.topics if _has_lost(before, after, name)]
        tombstones = self.offsets.of_lost_topics(after, lost)
        if tombstones:
            ignore_outcome(self._forget_offsets(tombstones))
        for group_id in tuple(self._groups):
            self.refresh(group_id)

    def refresh(self, group_id: str) -> None:
        """Let the group take note of the current topics."""
        group = self._groups.get(group_id)
        if isinstance(group, (ConsumerGroup, ShareGroup)) and self._closed is None:
            self.carry_out(group_id, group.on_topics(self._context.image, self.now_ms()))
        if isinstance(group, ShareGroup):
            self.share.follow_topics(group)

    def sweep(self, group_id: str) -> None:
        """Remove the expired offsets of the group, and the group itself if it has neither members nor offsets."""
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return  # A share group stays until it is deleted.
        if group is None or self._closed is not None or self._appender.replica.is_under_min_insync:
            return
        tombstones = self.offsets.expired(
            group_id,
            group.empty_since_ms,
            None if group.is_empty else group.reads,
            self._context.config[OFFSETS_RETENTION_MINUTES],
            self._context.config,
            self._context.image,
            self._context.wall_ms(),
        )
        if tombstones:
            ignore_outcome(self._forget_offsets(tombstones))
        elif group.is_empty and group.next_deadline_ms is None and not self.offsets.has(group_id):
            ignore_outcome(self._forget(group_id))

    def _on_close(self, code: ErrorCode) -> None:
        self.transactional.close()
        self.share.close()
        for group in self._groups.values():
            for ticket, result in group.give_up(code).answers:
                _answer(ticket, result)
        self._groups.clear()
        self.offsets = Offsets()

    # --- from a step to its responses

    def carry_out(self, group_id: str, step: GroupStep) -> None:
        """Append the records of a step, and send its responses when the records are committed."""
        step += self._groups.downgrade_if_due(group_id, self.now_ms())
        if step.records or step.answers:
            self._appender.add(step.records, partial(self._on_step, step))
        self._schedule(group_id, self._groups[group_id].next_deadline_ms)
        self.drop_if_blank(group_id)

    def drop_if_blank(self, group_id: str) -> None:
        """Remove a group that never had a member, so that refused requests with random group ids use no memory."""
        group = self._groups.get(group_id)
        if (
            group is not None
            and group.is_blank
            and group.next_deadline_ms is None
            and not self.offsets.has(group_id)
        ):
            del self._groups[group_id]

    def _on_step(self, step: GroupStep, error: BrokerError | None) -> None:
        if not is_stored(error) and step.records:
            self._lose()
        refusal = self._closed or (error if step.records else None)
        if refusal is not None:
            for ticket, _ in step.answers:
                self.settle(cast("asyncio.Future[Result]", ticket), refusal)
            return
        for ticket, result in step.answers:
            _answer(ticket, result)

    def _existing(self, group_id: str) -> CoordinatedGroup:
        self.check_open()
        return self._groups.existing(group_id)


def _ticket() -> asyncio.Future[Result]:
    return asyncio.get_running_loop().create_future()


def _answer(ticket: Ticket, result: Result) -> None:
    future = cast("asyncio.Future[Result]", ticket)
    if not future.done():
        future.set_result(result)


def _check_strings(*texts: str | None) -> None:
    if any(text is not None and len(text) > MAX_STRING_LENGTH for text in texts):
        raise BrokerError(ErrorCode.invalid_request, f"a name has more than {MAX_STRING_LENGTH} characters")


def _has_lost(before: ClusterImage, after: ClusterImage, name: str) -> bool:
    """True if the topic was deleted, or created again, or has fewer partitions."""
    was, now = before.topic(name), after.topic(name)
    if was is None or now is None:
        return was is not now
    return was.id != now.id or len(now.partitions) < len(was.partitions)
