"""Requests about the share groups of a shard, and the share states that their partitions need.

States are created and deleted through the share coordinator, which may be on another broker. A background
task for each group does so; heartbeats do not wait for it, and partitions are assigned when their states
exist. The states of a group are changed by one task at a time, so a deleted group leaves no state behind.
Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from penstock.config import SHARE_QUEUE_TOPIC
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.context import GroupContext
from penstock.groups.group import ShareHeartbeat, ShareHeartbeatResult
from penstock.groups.records import ShareTopic
from penstock.groups.shard_groups import ShardGroups, no_group
from penstock.groups.share.group import JOIN_EPOCH, ShareGroup
from penstock.model import QUEUE_INITIALIZER, ShareKey, TopicId

if TYPE_CHECKING:
    from penstock.groups.shard import GroupShard

RETRY_SECONDS = 0.2
JOIN_WAIT_SECONDS = 1.0
"""Maximum time in seconds that a joining member waits for the states of its partitions."""
UNKNOWN_START = -1
"""Start offset of a new state that is not decided yet: the partition's leader sets it by `share.auto.offset.reset`."""


class ShareRequests:
    def __init__(self, shard: GroupShard, groups: ShardGroups, context: GroupContext) -> None:
        self._shard = shard
        self._groups = groups
        self._context = context
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._locks: WeakKeyDictionary[ShareGroup, asyncio.Lock] = WeakKeyDictionary()

    # --- members

    async def heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareHeartbeatResult:
        shard = self._shard
        shard.check_open()
        if request.member_epoch <= 0:
            shard.check_writable()
        if request.member_id == QUEUE_INITIALIZER:
            return await self._initialize_queue(group_id, request)
        group = self._groups.for_share_heartbeat(group_id, request, shard.offsets.has(group_id))
        result = await self._beat(group, request)
        task = self._tasks.get(group_id)
        if request.member_epoch != JOIN_EPOCH or result.error is not ErrorCode.none or task is None:
            return result
        # The states of new partitions exist in a moment, and the member gets these partitions without another
        # heartbeat.
        await asyncio.wait([task], timeout=JOIN_WAIT_SECONDS)
        if not self._is_current(group) or request.member_id not in group.remembered.members:
            return result
        return await self._beat(group, replace(request, member_epoch=result.member_epoch))

    async def _initialize_queue(self, group_id: str, request: ShareHeartbeat) -> ShareHeartbeatResult:
        """Create the states of partitions that were added to the topic of a queue.

        The request adds no member: a receive from a queue must not prevent the queue from being purged or
        deleted, nor create it again.
        """
        group = await self._group_of_queue(group_id, request)
        async with self.changing(group):
            self._check_current(group)
            group.remembered.see(self._context.image)
            if topics := group.uninitialized(request.subscribed_topics or ()):
                await self._initialize(group, topics)
        return ShareHeartbeatResult(
            ErrorCode.none, member_id=request.member_id, member_epoch=request.member_epoch
        )

    async def _group_of_queue(self, group_id: str, request: ShareHeartbeat) -> ShareGroup:
        """Return the group of a queue. It is created again if Kafka's tools have deleted it while the queue
        still exists.
        """
        self._shard.check_open()
        if self._groups.get(group_id) is None:
            await self._context.confirm_image()
            self._shard.check_writable()
            configs = self._context.image.group_overrides().get(group_id, {})
            is_queue = configs.get(SHARE_QUEUE_TOPIC.name) in (request.subscribed_topics or ())
            if is_queue and self._groups.get(group_id) is None:
                has_offsets = self._shard.offsets.has(group_id)
                group = self._groups.for_share_heartbeat(group_id, _NOBODY, has_offsets)
                self._shard.carry_out(group_id, group.begin_reset()[1])
        return self.existing(group_id)

    async def _beat(self, group: ShareGroup, request: ShareHeartbeat) -> ShareHeartbeatResult:
        shard = self._shard
        ticket: asyncio.Future[ShareHeartbeatResult] = asyncio.get_running_loop().create_future()
        step = group.share_heartbeat(request, self._context.image, ticket, shard.now_ms())
        shard.carry_out(group.group_id, step)
        self.follow_topics(group)
        return await ticket

    def existing(self, group_id: str) -> ShareGroup:
        """Return the share group. BrokerError GROUP_ID_NOT_FOUND if it does not exist or is a group of
        another kind.
        """
        self._shard.check_open()
        group = self._groups.existing(group_id)
        if not isinstance(group, ShareGroup):
            raise no_group(group_id)
        return group

    # --- share states

    def follow_topics(self, group: ShareGroup) -> None:
        """Create the states of new partitions, and delete those of deleted topics."""
        if group.group_id not in self._tasks and not self._shard.is_closed and self._has_work(group):
            task = asyncio.get_running_loop().create_task(self._work(group))
            self._tasks[group.group_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(group.group_id, None))

    def close(self) -> None:
        for task in tuple(self._tasks.values()):
            task.cancel()

    def changing(self, group: ShareGroup) -> asyncio.Lock:
        """Lock that is held while the states of a group change, which may need requests to several brokers."""
        return self._locks.setdefault(group, asyncio.Lock())

    def _has_work(self, group: ShareGroup) -> bool:
        return bool(group.uninitialized() or self._gone(group))

    def _gone(self, group: ShareGroup) -> dict[TopicId, ShareTopic]:
        known = self._context.image.topic_names
        topics = group.remembered.topics.initialized
        return {topic_id: topic for topic_id, topic in topics.items() if topic_id not in known}

    async def _work(self, group: ShareGroup) -> None:
        while self._is_current(group) and self._has_work(group):
            try:
                async with self.changing(group):
                    self._check_current(group)
                    if topics := group.uninitialized():
                        await self._initialize(group, topics)
                    if gone := self._gone(group):
                        await self._delete(group, gone)
            except BrokerError:
                await asyncio.sleep(RETRY_SECONDS)

    def _is_current(self, group: ShareGroup) -> bool:
        return not self._shard.is_closed and self._groups.get(group.group_id) is group

    def _check_current(self, group: ShareGroup) -> None:
        """Raise BrokerError if the group was deleted or the shard is closed."""
        self._shard.check_open()
        if not self._is_current(group):
            raise no_group(group.group_id)

    async def _initialize(self, group: ShareGroup, topics: Mapping[TopicId, ShareTopic]) -> None:
        """Create states with the current group epoch. A retry after a failure, even in a later epoch, does
        not change states that exist already, because members may have used them.
        """
        epoch = group.remembered.epoch
        self._shard.carry_out(group.group_id, group.initializing(topics))
        for key in _keys(group, topics):
            await self._context.share_states.initialize(key, epoch, UNKNOWN_START)
        if self._is_current(group):
            self._shard.carry_out(group.group_id, group.initialized(topics))

    async def _delete(self, group: ShareGroup, topics: Mapping[TopicId, ShareTopic]) -> None:
        for key in _keys(group, topics):
            await self._context.share_states.delete(key)
        if self._is_current(group):
            self._shard.carry_out(group.group_id, group.forget_topics(tuple(topics)))

    # --- administration

    async def delete_states(self, group: ShareGroup, topics: Sequence[TopicId] | None = None) -> None:
        """Delete the states of a group without members, for `topics` or, if that is None, for all topics. The
        caller holds the lock `changing`.
        """
        self.check_unused(group)
        known = group.remembered.topics
        every = {**known.initializing, **known.initialized}
        chosen = {
            topic_id: topic for topic_id, topic in every.items() if topics is None or topic_id in topics
        }
        await self._delete(group, chosen)
        self.follow_topics(group)  # A consumer that has joined meanwhile needs new states.

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[tuple[TopicId, str, int], int]
    ) -> dict[tuple[TopicId, str, int], BrokerError | None]:
        """Reset the start offsets of partitions, which are given as topic id, topic name and partition."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups.for_share_heartbeat(group_id, _NOBODY, self._shard.offsets.has(group_id))
        if not isinstance(group, ShareGroup):
            raise no_group(group_id)
        self._shard.check_writable()
        async with self.changing(group):
            self.check_unused(group)
            return await self._reset(group, offsets)

    async def _reset(
        self, group: ShareGroup, offsets: Mapping[tuple[TopicId, str, int], int]
    ) -> dict[tuple[TopicId, str, int], BrokerError | None]:
        group.remembered.see(self._context.image)
        epoch, step = group.begin_reset()
        self._shard.carry_out(group.group_id, step)
        outcomes: dict[tuple[TopicId, str, int], BrokerError | None] = {}
        done: dict[TopicId, ShareTopic] = {}
        for (topic_id, name, partition), offset in offsets.items():
            place = (topic_id, name, partition)
            try:
                await self._context.share_states.initialize(
                    ShareKey(group.group_id, topic_id, partition), epoch, offset
                )
                outcomes[place] = None
                before = done.get(topic_id, ShareTopic(name, frozenset()))
                done[topic_id] = ShareTopic(name, before.partitions | {partition})
            except BrokerError as error:
                outcomes[place] = error
        if done and self._is_current(group):
            self._shard.carry_out(group.group_id, group.initialized(done))
        await self._shard.write([])
        return outcomes

    def check_unused(self, group: ShareGroup) -> None:
        """Raise BrokerError if the group has members or was deleted, or if the shard is closed."""
        self._check_current(group)
        if not group.is_empty:
            raise BrokerError(
                ErrorCode.non_empty_group, f"group {group.group_id[:80]!r} has members; stop them first"
            )


_NOBODY = ShareHeartbeat("", 0, None, "", "", frozenset())


def _keys(group: ShareGroup, topics: Mapping[TopicId, ShareTopic]) -> list[ShareKey]:
    return [
        ShareKey(group.group_id, topic_id, partition)
        for topic_id, topic in topics.items()
        for partition in sorted(topic.partitions)
    ]
