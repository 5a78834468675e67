"""Writes the next phases of partitions that are being removed and that this broker leads, many in one write. Loop
thread only.

A phase is written on condition of the partition epoch from which it was decided, a removal on condition of the leader
epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from penstock.cluster.image import PartitionPhase, PartitionState, TopicImage
from penstock.cluster.partition_counts import Advance, PartitionCounts, PartitionRemoval
from penstock.cluster.shrinking import is_removable
from penstock.config import PARTITION_DRAIN_MAX_MS, PARTITION_DRAIN_QUIET_MS, TopicConfig
from penstock.errors import BrokerError, PenstockError
from penstock.model import Offset, TopicPartition
from penstock.observability.logs import Logger
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.server.draining.group_positions import GroupPositions
from penstock.server.draining.next_phase import (
    DrainingPartition,
    DrainLimits,
    DrainVerdict,
    GroupPosition,
    judge,
)
from penstock.server.draining.unread import has_records, has_undelivered
from penstock.server.draining.writers import Writers

NAMED_WRITERS = 5
JUDGED_AT_ONCE = 100
"""Number of partitions that are judged in one turn of the event loop."""
MAX_WRITES = 200
"""Maximum number of partitions in one write to the coordination store."""


class Advancer:
    def __init__(
        self, context: BrokerContext, counts: PartitionCounts, writers: Writers, logger: Logger
    ) -> None:
        self.verdicts: dict[TopicPartition, DrainVerdict] = {}
        """Last verdict about each partition that this broker leads."""
        self.positions = GroupPositions()
        """Positions of groups in the partitions, as all coordinators last reported them."""
        self.removed = 0
        self._context = context
        self._counts = counts
        self._writers = writers
        self._logger = logger

    def limits(self, topic: TopicImage) -> DrainLimits:
        settings = TopicConfig(self._context.config, topic.configs)
        return DrainLimits(settings[PARTITION_DRAIN_QUIET_MS], settings[PARTITION_DRAIN_MAX_MS])

    async def advance(
        self,
        going: Iterable[tuple[Replica, PartitionState]],
        topics: Mapping[str, TopicImage],
        quiet_ms: Callable[[TopicPartition, int], int],
    ) -> None:
        """Decide the next phase of each partition that this broker leads, and write the changes."""
        due: list[Advance] = []
        for number, (replica, state) in enumerate(going, 1):
            if number % JUDGED_AT_ONCE == 0:
                await asyncio.sleep(0)
            topic = topics.get(replica.name.topic)
            if topic is None or not replica.partition.is_leader:
                continue  # the partition count was raised again since the check began, or another broker leads now
            limits = self.limits(topic)
            verdict = await self._judge(replica, state, quiet_ms(replica.name, limits.quiet_ms), limits)
            self.verdicts[replica.name] = verdict
            if verdict.phase is not None:
                self._announce(replica, verdict)
                due.append(Advance(replica.name, state.partition_epoch, verdict.phase))
        for first in range(0, len(due), MAX_WRITES):
            with suppress(PenstockError):  # the next check tries again
                await self._counts.advance(due[first : first + MAX_WRITES])

    async def remove(self, topics: Iterable[TopicImage]) -> None:
        """Remove the last partitions of topics that can be removed (`end_for_removal`)."""
        ready = [replica for topic in topics for replica in self._removable(topic)][:MAX_WRITES]
        for replica in ready:
            replica.is_ending = True
        if not ready:
            return
        with suppress(PenstockError):
            # After an error the outcome is unknown: the partitions accept no transaction marker until a later
            # attempt succeeds.
            done = await self._counts.remove([self._removal(replica) for replica in ready])
            self.removed += len(done)
            for replica in ready:
                replica.is_ending = replica.name in done
                if replica.is_ending:
                    end = replica.log.log_end_offset
                    self._logger.info("partition removed", partition=replica.name, log_end_offset=end)

    def _removable(self, topic: TopicImage) -> list[Replica]:
        """Partitions at the end of a topic that this broker leads and may remove, in descending order."""
        found: list[Replica] = []
        for index in range(len(topic.partitions) - 1, 0, -1):
            replica = self._led(topic, index)
            state = topic.partitions[index]
            if replica is None or not is_removable(topic, index, last=index):
                break
            if end_for_removal(replica, state.phase is PartitionPhase.DROPPING) is None:
                break
            found.append(replica)
        return found

    def _led(self, topic: TopicImage, index: int) -> Replica | None:
        if topic.partitions[index].leader != self._context.node_id:
            return None
        try:
            replica = self._context.replicas.get(topic.name, index)
        except BrokerError:
            return None  # the image is ahead of the replicas
        return replica if replica.partition.is_leader and replica.topic_id == topic.id else None

    def _removal(self, replica: Replica) -> PartitionRemoval:
        def log_end(state: PartitionState) -> Offset | None:
            if state.phase < PartitionPhase.SEALED:
                return None
            end = end_for_removal(replica, state.phase is PartitionPhase.DROPPING)
            if end is not None:
                replica.is_ending = True  # it may have been active since the removal began
            return end

        return PartitionRemoval(replica.name, replica.partition.leader_epoch, log_end)

    async def _judge(
        self, replica: Replica, state: PartitionState, quiet_ms: int, limits: DrainLimits
    ) -> DrainVerdict:
        log = replica.log
        behind = await self._behind(replica) if asks_groups(replica, state) else ()
        partition = DrainingPartition(
            state.phase,
            state.waits_for_groups,
            max(0, self._context.clock.now_ms() - state.phase_since_ms),
            quiet_ms,
            log.producers.unstable.first_open() is not None,
            log.high_watermark >= log.log_end_offset,
            has_undelivered(replica),
            behind,
        )
        return judge(partition, limits)

    async def _behind(self, replica: Replica) -> Sequence[GroupPosition] | None:
        if not self.positions.is_complete(self._context.image):
            return None
        behind = []
        for position in self.positions.found.get(replica.name, ()):
            log = replica.log
            if position.offset >= log.high_watermark:
                continue
            look = partial(has_records, log, Offset(position.offset), log.high_watermark)
            if await self._context.threads.run("read", look):
                behind.append(position)
        return behind

    def _announce(self, replica: Replica, verdict: DrainVerdict) -> None:
        if verdict.is_overdue:
            writers = [f"{client.client_id}@{client.host}" for client, _ in self._writers.of(replica.name)]
            self._logger.warning(
                "drain time exceeded, partition refuses records",
                partition=replica.name,
                writers=", ".join(writers[:NAMED_WRITERS]),
            )
        else:
            phase = verdict.phase.name.lower() if verdict.phase is not None else ""
            self._logger.info("partition phase changed", partition=replica.name, phase=phase)


def asks_groups(replica: Replica, state: PartitionState) -> bool:
    return replica.partition.is_leader and state.phase is PartitionPhase.DRAINING and state.waits_for_groups


def end_for_removal(replica: Replica, is_dropped: bool) -> Offset | None:
    """Log end offset of a partition that can be removed; None if it has records that are still needed, or an open
    transaction.
    """
    log = replica.log
    end = log.log_end_offset
    is_settled = (
        log.high_watermark >= end
        and log.producers.unstable.first_open() is None
        and not has_undelivered(replica)
    )
    is_archived = replica.removable_offset >= end
    is_expired = log.log_start_offset >= end
    return end if is_settled and is_archived and (is_expired or is_dropped) else None
