"""Loading of a shard: builds its state from the records of its log, in log order (see `state_log.replaying`)."""

from __future__ import annotations

import asyncio

from penstock.groups.context import GroupContext
from penstock.groups.record_codec import decode_record
from penstock.groups.shard_state import ShardState
from penstock.replication.replica import Replica
from penstock.state_log.replaying import Replaying
from penstock.threads import Threads

GROUPS_PER_TURN = 50


class Loading:
    """Loading of one shard: one pass over its log."""

    def __init__(self, replica: Replica, threads: Threads, context: GroupContext) -> None:
        self._context = context
        self._state = ShardState(context)
        self._replaying = Replaying(
            replica,
            threads,
            decode_record,
            self._state.apply,
            self._state.apply_transactional,
            newest_only=True,
        )

    @property
    def unknown(self) -> int:
        """Number of records that were skipped because they are damaged or of an unknown kind or version."""
        return self._replaying.unknown

    @property
    def damaged_parts(self) -> int:
        return self._replaying.damaged_parts

    async def run(self) -> ShardState:
        """Replay the log and return the state. BrokerError or StorageError if the log cannot be read."""
        await self._replaying.run()
        for place, group in enumerate(tuple(self._state.groups.values())):
            if place % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
            group.loaded(self._context.image, self._context.timers.now_ms())
        await self._add_groups_of_offsets()
        return self._state

    async def _add_groups_of_offsets(self) -> None:
        """Add an empty classic group for each group id that only has offsets."""
        groups = self._state.groups
        for place, group_id in enumerate(tuple(self._state.offsets.groups())):
            if place % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
            if group_id not in groups:
                groups.add_classic(group_id)
