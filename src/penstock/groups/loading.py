"""Builds the groups and offsets of a shard from the records of its log, in log order (see
`state_log.replaying`).
"""

from __future__ import annotations

import asyncio
from typing import cast

from penstock.cluster.image import ClusterImage
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.context import GroupContext, ShardState
from penstock.groups.offsets import Offsets
from penstock.groups.record_codec import decode_record
from penstock.groups.records import (
    ClassicGroupKey,
    ClassicGroupValue,
    ConsumerGroupKey,
    GroupRecord,
    OffsetKey,
    OffsetValue,
)
from penstock.groups.settings import GroupSettings
from penstock.records.control import Marker
from penstock.replication.replica import Replica
from penstock.state_log.replaying import InTransaction, Replaying
from penstock.threads import Threads

GROUPS_PER_TURN = 50


class Loading:
    """One pass over one log."""

    def __init__(self, replica: Replica, threads: Threads, context: GroupContext) -> None:
        self._replaying = Replaying(
            replica, threads, decode_record, self._replay, self._replay_transactional, newest_only=True
        )
        self._context = context
        self._offsets = Offsets()
        self._classic: dict[str, ClassicGroupValue] = {}
        self._consumer: dict[str, ConsumerGroup] = {}

    @property
    def unknown(self) -> int:
        """Number of records that were passed over."""
        return self._replaying.unknown

    @property
    def damaged_parts(self) -> int:
        return self._replaying.damaged_parts

    async def run(self) -> ShardState:
        """Replay the log; BrokerError or StorageError if it cannot be read."""
        await self._replaying.run()
        return await self._finish()

    def _replay(self, record: GroupRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, OffsetKey):
            self._offsets.apply(key, cast("OffsetValue | None", value))
        elif isinstance(key, ClassicGroupKey):
            self._classic.pop(key.group_id, None)
            if value is not None:
                self._consumer.pop(key.group_id, None)
                self._classic[key.group_id] = cast(ClassicGroupValue, value)
        elif isinstance(key, ConsumerGroupKey) and value is None:
            self._consumer.pop(key.group_id, None)
        else:
            self._replay_consumer(key.group_id, record)

    def _replay_transactional(self, step: InTransaction[GroupRecord] | Marker) -> None:
        if isinstance(step, Marker):
            self._offsets.end_transaction(step.producer_id, is_commit=step.is_commit)
            return
        key, value = step.record.key, step.record.value
        if isinstance(key, OffsetKey) and value is not None:
            self._offsets.transactional.add(step.producer_id, key, cast(OffsetValue, value))

    def _replay_consumer(self, group_id: str, record: GroupRecord) -> None:
        group = self._consumer.get(group_id)
        if group is None:
            if record.value is None:
                return
            self._classic.pop(group_id, None)
            group = self._consumer[group_id] = ConsumerGroup(
                group_id, self._context.settings, self._context.wall_ms
            )
        group.apply(record)

    async def _finish(self) -> ShardState:
        """Build the groups. A group that only has offsets becomes an empty classic group."""
        state = ShardState(offsets=self._offsets)
        context = self._context
        names = {**self._classic, **self._consumer, **dict.fromkeys(self._offsets.groups())}
        for place, group_id in enumerate(names):
            if place % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
            state.groups[group_id] = self._make(group_id, context.settings, context.image)
        return state

    def _make(
        self, group_id: str, settings: GroupSettings, image: ClusterImage
    ) -> ClassicGroup | ConsumerGroup:
        now_ms, wall_ms = self._context.timers.now_ms(), self._context.wall_ms
        consumer = self._consumer.get(group_id)
        if consumer is not None:
            consumer.loaded(image, now_ms)
            return consumer
        value = self._classic.get(group_id)
        if value is None:
            return ClassicGroup(group_id, settings, wall_ms)
        return ClassicGroup.restore(group_id, value, settings, wall_ms, now_ms)
