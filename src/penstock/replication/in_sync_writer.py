"""Writer of the in-sync sets of all partitions that this broker leads; many changes share one write.

Slow followers are removed at regular intervals; followers that have caught up or whose broker has died are handled at
once. While the outcome of a write is unknown, records wait for both the old and the new set (`InSync`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from penstock.clock import Clock, monotonic_ms
from penstock.config import REPLICA_LAG_TIME_MAX_MS
from penstock.errors import BrokerError, PenstockError
from penstock.model import LeaderEpoch, TopicId, TopicPartition
from penstock.observability.logs import Logger
from penstock.replication.in_sync import InSync, InSyncChange
from penstock.replication.replica import Replica
from penstock.replication.replica_manager import ReplicaManager

_MAX_TICK_SECONDS = 1.0
_PAUSE_SECONDS = 0.02
_REPLICAS_PER_TURN = 500


@dataclass(frozen=True, slots=True)
class InSyncWrite:
    """Change of one partition, on condition that its partition epoch is `change.partition_epoch`."""

    name: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    change: InSyncChange


class WriteResult(Enum):
    RECORDED = auto()
    REFUSED = auto()
    """The write was not made and never will be."""
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class InSyncOutcome:
    result: WriteResult
    partition_epoch: int = -1
    """Partition epoch after a recorded write; -1 otherwise."""


class InSyncStore(Protocol):
    async def write_in_sync(self, writes: Sequence[InSyncWrite]) -> Sequence[InSyncOutcome]:
        """Write the changes; return one outcome for each, in order. PenstockError if all outcomes are unknown."""
        ...


@dataclass(frozen=True, slots=True)
class _Proposal:
    replica: Replica
    in_sync: InSync
    change: InSyncChange

    @property
    def is_current(self) -> bool:
        """True if this broker still leads in the leader epoch of the proposal."""
        partition = self.replica.partition
        return partition.is_leader and partition.in_sync is self.in_sync

    def settle(self, outcome: InSyncOutcome) -> None:
        if not self.is_current:
            return
        if outcome.result is WriteResult.RECORDED:
            self.in_sync.recorded_as(
                self.change.members, outcome.partition_epoch, has_eligible=self.change.keeps_eligible
            )
        elif outcome.result is WriteResult.REFUSED:
            self.in_sync.refused(self.change)
        else:
            self.in_sync.unknown(self.change)
        self.replica.on_in_sync_change(self.replica.partition.on_in_sync())


def _is_idle(proposal: _Proposal) -> bool:
    """True if no producer waits for the change; such changes are written last."""
    return proposal.replica.log.high_watermark >= proposal.replica.log.log_end_offset


class InSyncWriter:
    def __init__(self, replicas: ReplicaManager, store: InSyncStore, clock: Clock, logger: Logger) -> None:
        self._replicas = replicas
        self._store = store
        self._clock = clock
        self._logger = logger
        self._task: asyncio.Task[None] | None = None
        self.shrinks = self.expansions = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self._wait()
            try:
                await self._write(await self._propose())
            except Exception as error:  # noqa: BLE001 - a loop that dies would end commits for good
                self._logger.error_rarely("in-sync replicas could not be updated", error)
            # Followers that catch up meanwhile share the next write.
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _wait(self) -> None:
        lag_seconds = self._replicas.config[REPLICA_LAG_TIME_MAX_MS] / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(min(lag_seconds / 4, _MAX_TICK_SECONDS)):
                await self._replicas.in_sync_due.wait()
        self._replicas.in_sync_due.clear()

    async def _propose(self) -> list[_Proposal]:
        alive, lag_ms = self._replicas.alive, self._replicas.config[REPLICA_LAG_TIME_MAX_MS]
        proposals = []
        for place, replica in enumerate(self._replicas.replicated):
            if place % _REPLICAS_PER_TURN == _REPLICAS_PER_TURN - 1:
                await asyncio.sleep(0)
            partition = replica.partition
            if partition.is_leader and partition.in_sync.followers:
                change = partition.propose(alive, lag_ms, monotonic_ms(self._clock))
                # The high watermark moves if records no longer wait for a follower outside of the set.
                has_moved = partition.advance()
                if change is not None or has_moved:
                    replica.on_in_sync_change(has_moved)
                if change is not None:
                    proposals.append(_Proposal(replica, partition.in_sync, change))
        proposals.sort(key=_is_idle)
        flushed = await asyncio.gather(*(self._flush(proposal) for proposal in proposals))
        return [proposal for proposal, is_flushed in zip(proposals, flushed, strict=True) if is_flushed]

    async def _flush(self, proposal: _Proposal) -> bool:
        """Make the leader's records durable if the change requires it; False if that failed."""
        if proposal.change.flush_to is None:
            return True
        try:
            await proposal.replica.flushed()
        except BrokerError:
            proposal.settle(InSyncOutcome(WriteResult.REFUSED))
            return False
        return True

    async def _write(self, proposals: list[_Proposal]) -> None:
        current = [proposal for proposal in proposals if proposal.is_current]
        if not current:
            return
        writes = [
            InSyncWrite(
                proposal.replica.name,
                proposal.replica.topic_id,
                proposal.replica.partition.leader_epoch,
                proposal.change,
            )
            for proposal in current
        ]
        outcomes: Sequence[InSyncOutcome] = [InSyncOutcome(WriteResult.UNKNOWN)] * len(current)
        try:
            outcomes = await self._store.write_in_sync(writes)
        except (OSError, PenstockError) as error:
            self._logger.error_rarely(
                "outcome of updates of in-sync replicas is unknown", error, partitions=len(writes)
            )
        finally:
            for proposal, outcome in zip(current, outcomes, strict=True):
                if outcome.result is WriteResult.RECORDED:
                    self._count(proposal)
                proposal.settle(outcome)

    def _count(self, proposal: _Proposal) -> None:
        self.expansions += bool(proposal.change.joining)
        self.shrinks += bool(proposal.in_sync.recorded - proposal.change.members)
