"""Administration of single partitions: reassignments, and elections at an operator's request.

Any broker starts them, with writes that are conditional on the partition's state. The controller completes
reassignments (`reassignment.complete`). Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from penstock.cluster import leader_election, reassignment
from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.image import NO_LEADER, ClusterImage, PartitionState
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.metadata_change import MetadataChange, attempt, repeated_in
from penstock.cluster.partition_writes import PartitionWrites
from penstock.cluster.topic_writes import Writes, chunks
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, TopicPartition
from penstock.observability.logs import Logger

Judge = Callable[[ClusterImage, PartitionState], PartitionState]
"""Function that computes the new state of a partition, or raises BrokerError."""


MAX_NAMED = 20_000
"""Maximum number of partitions in one request. The response lists each of them."""


class ElectionType(IntEnum):
    """Election types with Kafka's codes."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ReassignmentRequest:
    name: TopicPartition
    target: tuple[BrokerId, ...] | None
    """Wanted replicas; None cancels the reassignment in progress."""


class PartitionAdministration:
    def __init__(self, metadata: ClusterMetadata, changes: ChangeMaker, log: Logger) -> None:
        self._metadata = metadata
        self._changes = changes
        self._log = log

    async def reassign(
        self, wanted: Sequence[ReassignmentRequest], *, may_change_count: bool = True
    ) -> list[BrokerError | None]:
        """Start or cancel reassignments. Returns None or the error for each request, in order."""

        def judge(
            target: tuple[BrokerId, ...] | None, image: ClusterImage, partition: PartitionState
        ) -> PartitionState:
            if target is None:
                return reassignment.cancel(partition)
            return reassignment.begin(image, partition, target, may_change_count=may_change_count)

        return await self._change([(each.name, partial(judge, each.target)) for each in wanted])

    async def elect(
        self, names: Sequence[TopicPartition], election: ElectionType
    ) -> list[BrokerError | None]:
        """Elect leaders. Returns None or the error for each partition, in order."""
        judge = _preferred if election is ElectionType.PREFERRED else _unclean
        before = self._metadata.image
        results = await self._change([(name, judge) for name in names])
        for name, result in zip(names, results, strict=True):
            if result is None and election is ElectionType.UNCLEAN:
                self._report(name, before.partition(name))
        return results

    def _report(self, name: TopicPartition, before: PartitionState | None) -> None:
        after = self._metadata.image.partition(name)
        if before is not None and after is not None and after.leader not in before.isr:
            self._log.warning(
                "unclean leader elected, records it lacks are lost",
                partition=name,
                leader=after.leader,
                leader_epoch=after.leader_epoch,
                was_in_sync=before.isr,
            )

    async def _change(self, wanted: Sequence[tuple[TopicPartition, Judge]]) -> list[BrokerError | None]:
        repeated = repeated_in([name for name, _ in wanted])
        results: list[BrokerError | None] = []
        for chunk in chunks(wanted):
            try:
                decided = await self._changes.make(partial(_decide, chunk, repeated))
            except BrokerError as error:
                return results + [error] * (len(wanted) - len(results))
            results += decided
        return results


def check_named(count: int) -> None:
    if count > MAX_NAMED:
        raise BrokerError(
            ErrorCode.policy_violation, f"{count} partitions in one request are more than {MAX_NAMED}"
        )


def _decide(
    wanted: Iterable[tuple[TopicPartition, Judge]], repeated: set[object], image: ClusterImage
) -> MetadataChange[list[BrokerError | None]]:
    results: list[BrokerError | None] = []
    writes = PartitionWrites()
    for name, judge in wanted:
        judged = attempt(partial(_judge, image, judge), name, name in repeated)
        results.append(judged if isinstance(judged, BrokerError) else None)
        if isinstance(judged, PartitionState) and judged != image.partition(name):
            writes.set(name, judged)
    return MetadataChange(results, Writes(tuple(writes.operations)), writes.scope)


def _judge(image: ClusterImage, judge: Judge, name: TopicPartition) -> PartitionState:
    partition = image.partition(name)
    if partition is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no partition {name}")
    return judge(image, partition)


def _preferred(image: ClusterImage, partition: PartitionState) -> PartitionState:
    if partition.leader == partition.replicas[0]:
        raise BrokerError(ErrorCode.election_not_needed, "the preferred leader already leads")
    elected = leader_election.elect_preferred(image, partition)
    if elected is None:
        raise BrokerError(
            ErrorCode.preferred_leader_not_available,
            f"broker {partition.replicas[0]} is not alive and in sync",
        )
    return elected


def _unclean(image: ClusterImage, partition: PartitionState) -> PartitionState:
    if partition.leader != NO_LEADER and partition.leader in image.brokers:
        raise BrokerError(ErrorCode.election_not_needed, "the partition has a leader")
    elected = leader_election.elect_any(image, partition)
    if elected is None:
        raise BrokerError(
            ErrorCode.eligible_leaders_not_available, "no replica is alive; start a broker that has one"
        )
    return elected
