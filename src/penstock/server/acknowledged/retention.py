"""Retention of topics with `retention.acknowledged`: the leader deletes records that all queues and groups have
settled.

The leader asks every broker for the positions of its groups. If one of them does not respond, nothing is deleted.
Followers take over the log start offset of the leader.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.config import SHARE_QUEUE_TOPIC
from penstock.errors import StorageError
from penstock.internal_client.slices import in_slices
from penstock.model import Offset, TopicPartition
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.replication.replica import Replica
from penstock.server.acknowledged.deciding import DeletionVerdict, SettledPosition, decide
from penstock.server.acknowledged.positions import as_report, collect, read_report, sources
from penstock.server.cleaning import free_records
from penstock.server.context import BrokerContext
from penstock.server.draining.group_positions import GroupPositions

ROUND_SECONDS: Final = 5.0
QUESTION: Final = "settled_positions"


class AcknowledgedRetention:
    def __init__(self, context: BrokerContext, logger: Logger) -> None:
        """Create the object and set it as `context.acknowledged`, where the Inspect API finds it."""
        context.acknowledged = self
        self.verdicts: dict[TopicPartition, DeletionVerdict] = {}
        """Last verdict about each partition that this broker leads."""
        self.freed = 0
        """Number of offsets that were deleted since the start of the broker."""
        self._context = context
        self._logger = logger

    def show(self, metrics: BrokerMetrics) -> None:
        metrics.add_counter(
            "penstock_acknowledged_freed_records",
            "Offsets deleted from topics with retention.acknowledged because all queues and groups have settled them.",
            lambda: self.freed,
        )
        metrics.add_gauge(
            "penstock_acknowledged_blocked_partitions",
            "Partitions with retention.acknowledged whose deletion waits for a queue, group or group coordinator.",
            lambda: sum(1 for verdict in self.verdicts.values() if verdict.reason),
        )

    async def run(self) -> None:
        """Delete settled records, in all partitions that this broker leads."""
        replicas = [
            replica
            for replica in self._context.replicas
            if replica.log.config.retention_acknowledged and replica.partition.is_leader
        ]
        verdicts: dict[TopicPartition, DeletionVerdict] = {}
        positions = await self._ask_all() if replicas else None
        for replica in replicas:
            try:
                verdicts[replica.name] = await self._retain(replica, positions)
            except (OSError, StorageError) as error:
                self._logger.error_rarely("retention failed", error, partition=replica.name)
        self.verdicts = verdicts

    async def report(self) -> dict[str, Any]:
        """Positions of the groups whose coordinator is on this broker, as the answer to another broker."""
        return as_report(await self._own())

    async def _own(self) -> GroupPositions:
        positions = GroupPositions()
        await in_slices(collect(self._context, positions))
        return positions

    async def _ask_all(self) -> GroupPositions | None:
        """Positions of the groups of all brokers; None if a broker has not responded or is still loading its groups."""
        assert self._context.draining is not None, "the broker has started"
        image = self._context.image
        positions = await self._own()
        for answer in await self._context.draining.ask_others(QUESTION):
            try:
                positions.merge(read_report(answer))
            except (ValueError, TypeError, KeyError):
                return None
        return positions if positions.is_complete(image) and image is self._context.image else None

    async def _retain(self, replica: Replica, positions: GroupPositions | None) -> DeletionVerdict:
        log, name = replica.log, replica.name
        found = None
        if positions is not None:
            found = [SettledPosition(*each) for each in positions.found.get(name, ())]
        verdict = decide(found, self._queues(name.topic), log.log_start_offset, _limit(replica))
        if verdict.start_offset > log.log_start_offset and replica.partition.is_leader:
            self.freed += verdict.start_offset - log.log_start_offset
            await free_records(self._context, replica, Offset(verdict.start_offset))
        return verdict

    def _queues(self, topic: str) -> list[str]:
        """Queues that read the topic or a view of it."""
        image = self._context.image
        read = {each for each, source in sources(image).items() if source == topic}
        return [
            group
            for group, configs in image.group_configs.items()
            if configs.values.get(SHARE_QUEUE_TOPIC.name) in read
        ]


def _limit(replica: Replica) -> int:
    """Offset that bounds deletion regardless of the groups: last stable offset, archived offset and first pending
    message.
    """
    log, delayed = replica.log, replica.delayed
    limit = min(log.last_stable_offset, replica.removable_offset)
    if not log.config.delivery_delay:
        return limit
    if delayed is None or not delayed.is_ready or delayed.pending.is_in_flight_below(limit):
        return log.log_start_offset
    offsets = (delayed.pending.offset_of(each.message) for each in delayed.pending.stored_below(limit))
    return min(offsets, default=limit)
