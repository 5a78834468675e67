"""The coordinator: which groups this broker answers for, and the shards they live in.

There is a shard for each partition of `__consumer_offsets` that this broker leads (see `state_log.shards`). Loop
thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import Any, cast

from penstock.clock import Clock
from penstock.cluster.administration import Administration
from penstock.cluster.coordination import StoreError
from penstock.cluster.image import ClusterImage, ImageChange
from penstock.cluster.internal_topics import OFFSETS_TOPIC, new_offsets_topic
from penstock.cluster.metadata import ClusterMetadata
from penstock.config import OFFSETS_RETENTION_CHECK_INTERVAL_MS, BrokerConfig
from penstock.errors import BrokerError, ErrorCode, StorageError, UnknownOutcome
from penstock.groups.context import Counts
from penstock.groups.loading import Loading
from penstock.groups.record_codec import encode_record
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import MAX_STRING_LENGTH, GroupShard
from penstock.model import BrokerId
from penstock.observability.logs import Logger
from penstock.replication.replica import Replica
from penstock.replication.replica_manager import ReplicaManager
from penstock.state_log.appender import Appender
from penstock.state_log.shard import Shard
from penstock.state_log.shards import Shards
from penstock.state_log.timers import Timers
from penstock.threads import Threads

_GROUPS_PER_TURN = 50


class GroupCoordinator:
    def __init__(
        self,
        node_id: BrokerId,
        metadata: ClusterMetadata,
        administration: Administration,
        replicas: ReplicaManager,
        clock: Clock,
        threads: Threads,
        log: Logger,
    ) -> None:
        self.settings = GroupSettings(metadata.config, metadata.image.group_overrides())
        self.timers = Timers(clock, self._on_due)
        self.counts = Counts()
        self._metadata = metadata
        self._clock = clock
        self._threads = threads
        self._log = log
        self._shards: Shards[GroupShard] = Shards(
            OFFSETS_TOPIC,
            new_offsets_topic,
            node_id,
            metadata,
            administration,
            replicas,
            clock,
            log,
            self._load,
            self._refresh,
        )
        self._sweeping: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    @property
    def config(self) -> BrokerConfig:
        return self._metadata.config

    async def confirm_image(self) -> None:
        try:
            await self._metadata.confirm()
        except (StoreError, StorageError, UnknownOutcome) as error:
            raise BrokerError(
                ErrorCode.coordinator_not_available, "the coordination store does not answer"
            ) from error

    def wall_ms(self) -> int:
        return self._clock.now_ms()

    # --- who answers for a group

    async def find(self, group_id: str) -> BrokerId:
        """The broker that answers for the group."""
        return await self._shards.find(group_id)

    def shard_of(self, group_id: str) -> GroupShard:
        """The shard the group is in, if it is here and loaded."""
        if len(group_id) > MAX_STRING_LENGTH:
            raise BrokerError(
                ErrorCode.invalid_group_id, f"a group id of more than {MAX_STRING_LENGTH} characters"
            )
        return self._shards.of(group_id)

    @property
    def shards(self) -> Sequence[GroupShard]:
        """The loaded ones."""
        return self._shards.loaded

    @property
    def is_loading(self) -> bool:
        return self._shards.is_loading

    @property
    def load_seconds(self) -> float:
        return self._shards.load_seconds

    # --- coming and going

    def start(self) -> None:
        self._update_settings()
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())
        self._shards.start()

    async def stop(self) -> None:
        """Answer everybody who waits; nothing is appended after this returns."""
        self._stopped = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        await self._shards.stop()
        self.timers.close()

    def on_image(self, change: ImageChange) -> None:
        if self._stopped:
            return
        before, after = change.before, change.after
        if before.broker_configs != after.broker_configs or before.group_configs != after.group_configs:
            self._update_settings()
        if OFFSETS_TOPIC in change.topics:
            self._shards.follow_leadership()
        if change.topics - {OFFSETS_TOPIC}:
            for shard in self.shards:
                shard.on_topics(change)

    def on_repaired(self, replica: Replica) -> None:
        """Damaged records of this replica were repaired."""
        self._shards.on_repaired(replica)

    def lost(self, shard: Shard[Any]) -> None:
        self._shards.lost(shard)

    def _update_settings(self) -> None:
        self.settings.update(self.config, self.image.group_overrides())

    async def _load(self, index: int, replica: Replica) -> GroupShard:
        loading = Loading(replica, self._threads, self)
        state = await loading.run()
        self.counts.unknown_records += loading.unknown
        if loading.unknown or loading.damaged_parts:
            self._log.warning(
                "records of groups were passed over",
                partition=index,
                records=loading.unknown,
                damaged_parts=loading.damaged_parts,
            )
        shard = GroupShard(index, state, Appender(replica, self._clock, encode_record), self)
        shard.passed_over_damage = bool(loading.damaged_parts)
        return shard

    async def _refresh(self, shard: GroupShard) -> None:
        for place, group_id in enumerate(tuple(shard.groups)):
            if place % _GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
            shard.refresh(group_id)

    # --- time

    def _on_due(self, key: Hashable) -> None:
        # Not the shard itself: one that was closed would live on until its last deadline.
        index, group_id = cast("tuple[int, str | None]", key)
        shard = self._shards.get(index)
        if shard is not None:
            shard.on_due(group_id)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.config[OFFSETS_RETENTION_CHECK_INTERVAL_MS] / 1000)
            for shard in self.shards:
                try:
                    await self._sweep_shard(shard)
                except Exception as error:  # noqa: BLE001 - a loop that dies would end expiry for good
                    self._log.error_rarely("groups could not be swept", error, partition=shard.partition)

    async def _sweep_shard(self, shard: GroupShard) -> None:
        for place, group_id in enumerate(tuple(shard.groups)):
            if place % _GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
            shard.sweep(group_id)
