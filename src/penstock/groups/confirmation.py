"""Confirmation that this broker coordinates a shard of groups, for responses that must not come from a
replaced coordinator (see `docs/decisions/0020`).

A coordinator that has lost its connections to the store and to other brokers does not learn that it was
replaced, but it cannot commit a record either. A commit is therefore the proof. While the partition is under
min.insync.replicas nothing is committed, and a read of the store is the proof. Loop thread only; created by
`shard`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.context import GroupContext
from penstock.groups.records import GroupRecord, OffsetKey
from penstock.state_log.appender import Appender, is_stored

if TYPE_CHECKING:
    from penstock.groups.shard import GroupShard

_NOTHING = GroupRecord(OffsetKey("", "", -1), None)
"""Tombstone of an offset that does not exist, so that applying it changes nothing."""


class Confirmation:
    def __init__(self, shard: GroupShard, appender: Appender[GroupRecord], context: GroupContext) -> None:
        self._shard = shard
        self._appender = appender
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> asyncio.Future[None]:
        """Future that is done when it is certain that no other broker coordinated the shard before the call."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        partition, is_open = self._appender.replica.partition, not self._shard.is_closed
        if is_open and partition.in_sync.is_alone:
            future.set_result(None)
            return future
        if is_open and partition.is_held:
            task = asyncio.ensure_future(self._ask_store(future))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._appender.add([_NOTHING], partial(self._on_appended, future))
        if not future.done():
            self._shard.limit_wait(future)
        return future

    async def _ask_store(self, future: asyncio.Future[None]) -> None:
        replica = self._appender.replica
        error: BrokerError | None = None
        try:
            await self._context.confirm_image()
            state = self._context.image.partition(replica.name)
            if state is None or state.leader_epoch != replica.partition.leader_epoch:
                error = BrokerError(
                    ErrorCode.not_coordinator, "another broker is the coordinator of the group"
                )
        except BrokerError as refusal:
            error = refusal
        self._shard.settle(future, error)

    def _on_appended(self, future: asyncio.Future[None], error: BrokerError | None) -> None:
        self._shard.settle(future, None if is_stored(error) else error)
