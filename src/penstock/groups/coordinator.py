"""The group coordinator: maps group ids to shards of `__consumer_offsets`.

The base class has the shards and their loading. Loop thread only.
"""

from __future__ import annotations

import asyncio

from penstock.cluster.coordination import StoreError
from penstock.cluster.image import ClusterImage, ImageChange
from penstock.cluster.internal_topics import OFFSETS_TOPIC, new_offsets_topic
from penstock.config import OFFSETS_RETENTION_CHECK_INTERVAL_MS
from penstock.errors import BrokerError, ErrorCode, StorageError, UnknownOutcome
from penstock.groups.context import GroupCounts, ShareStates
from penstock.groups.loading import Loading
from penstock.groups.record_codec import encode_record
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import MAX_STRING_LENGTH, GroupShard
from penstock.replication.replica import Replica
from penstock.state_log.appender import Appender
from penstock.state_log.coordinator import Coordinator
from penstock.state_log.shards import CoordinatorContext

_GROUPS_PER_TURN = 50


class GroupCoordinator(Coordinator[GroupShard]):
    def __init__(self, context: CoordinatorContext, share_states: ShareStates) -> None:
        super().__init__(context, OFFSETS_TOPIC, new_offsets_topic)
        self.share_states = share_states
        self.settings = GroupSettings(self.config, self.image.group_overrides())
        self.counts = GroupCounts()

    @property
    def image(self) -> ClusterImage:
        return self._context.metadata.image

    async def confirm_image(self) -> None:
        try:
            await self._context.metadata.confirm()
        except (StoreError, StorageError, UnknownOutcome) as error:
            raise BrokerError(
                ErrorCode.coordinator_not_available, "the coordination store does not respond"
            ) from error

    def shard_of(self, group_id: str) -> GroupShard:
        """Return the shard of the group. BrokerError if this broker does not coordinate the group or the
        shard is not loaded.
        """
        if len(group_id) > MAX_STRING_LENGTH:
            raise BrokerError(
                ErrorCode.invalid_group_id, f"the group id has more than {MAX_STRING_LENGTH} characters"
            )
        return self._shards.of(group_id)

    def start(self) -> None:
        self._update_settings()
        super().start()

    def on_image(self, change: ImageChange) -> None:
        if self._stopped:
            return
        before, after = change.before, change.after
        if before.broker_configs != after.broker_configs or before.group_configs != after.group_configs:
            self._update_settings()
        super().on_image(change)
        if change.topics - {OFFSETS_TOPIC}:
            for shard in self.shards:
                shard.on_topics(change)

    def _update_settings(self) -> None:
        self.settings.update(self.config, self.image.group_overrides())

    async def _load(self, index: int, replica: Replica) -> GroupShard:
        loading = Loading(replica, self._context.threads, self)
        state = await loading.run()
        shard = GroupShard(index, state, Appender(replica, self._context.clock, encode_record), self)
        self._note_passed_over(shard, loading.unknown, loading.damaged_parts)
        return shard

    async def _on_loaded(self, shard: GroupShard) -> None:
        for place, group_id in enumerate(tuple(shard.groups)):
            if place % _GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
            shard.refresh(group_id)

    @property
    def _sweep_interval_ms(self) -> int:
        return self.config[OFFSETS_RETENTION_CHECK_INTERVAL_MS]

    async def _sweep(self, shard: GroupShard) -> None:
        for place, group_id in enumerate(tuple(shard.groups)):
            if place % _GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
            shard.sweep(group_id)
