"""Planted bugs of a smaller partition count.

Seeds show those without a register entry too rarely: `test_shrinking_scenarios.py` has scenarios for them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from cluster_mutants import shrink_counts_before_it_is_recorded
from planting import planted_in_cluster

from penstock.cluster import partition_counts, shrinking, topics
from penstock.cluster.coordination import Delete, Set
from penstock.cluster.image import PartitionPhase, PartitionState, RemovedPartition, TopicImage
from penstock.cluster.partition_counts import Advance
from penstock.groups import offsets
from penstock.replication.replica import Replica
from penstock.server.draining import advancing, next_phase
from penstock.server.draining.next_phase import DrainingPartition, DrainLimits, DrainVerdict
from penstock.server.draining.quiet_times import QuietTimes

_SHRINKING = {"shrinking"}


@planted_in_cluster("I3", needs=_SHRINKING)
def recreated_partitions_begin_at_zero() -> AbstractContextManager[Any]:
    """A partition that is created again has the offsets of the removed one."""
    right = shrinking.begin_again

    def wrong(state: PartitionState, removed: RemovedPartition | None) -> PartitionState:
        return replace(right(state, removed), first_offset=state.first_offset)

    return patch.object(topics, "begin_again", wrong)


@planted_in_cluster("I10", needs=_SHRINKING)
def leader_epochs_of_recreated_partitions_restart() -> AbstractContextManager[Any]:
    """A partition that is created again keeps the offsets and begins with leader epoch 0."""
    right = shrinking.begin_again

    def wrong(state: PartitionState, removed: RemovedPartition | None) -> PartitionState:
        return replace(right(state, removed), leader_epoch=state.leader_epoch)

    return patch.object(topics, "begin_again", wrong)


@planted_in_cluster("sealed log", needs=_SHRINKING)
def elections_lose_the_quiet_time() -> AbstractContextManager[Any]:
    """Brokers tell each other that partitions are written all the time."""
    return patch.object(QuietTimes, "of", lambda *_, **__: 0)


@planted_in_cluster("sealed log", needs=_SHRINKING)
def sealed_partitions_take_records() -> AbstractContextManager[Any]:
    """A leader checks the phase of a partition for markers only."""
    return patch.object(Replica, "_check_phase", lambda *_, **__: None)


@planted_in_cluster("removal", needs=_SHRINKING)
def sealed_partitions_are_removed_before_their_records_expire() -> AbstractContextManager[Any]:
    """The leader removes a sealed partition although its records are needed."""
    end = advancing.end_for_removal
    return patch.object(advancing, "end_for_removal", lambda replica, is_dropped: end(replica, True))


@planted_in_cluster("sealed log", needs=_SHRINKING)
def quiet_time_never_passes() -> AbstractContextManager[Any]:
    """Every look at a draining partition begins its quiet time anew."""
    right = next_phase.judge

    def wrong(partition: DrainingPartition, limits: DrainLimits) -> DrainVerdict:
        if partition.phase is PartitionPhase.DRAINING:
            return DrainVerdict()
        return right(partition, limits)

    return patch.object(advancing, "judge", wrong)


def sealed_with_an_open_transaction() -> AbstractContextManager[Any]:
    """The leader seals a partition although a transaction is open in it."""
    right = next_phase.judge

    def wrong(partition: DrainingPartition, limits: DrainLimits) -> DrainVerdict:
        return right(replace(partition, has_open_transaction=False), limits)

    return patch.object(advancing, "judge", wrong)


def sealed_by_an_old_decision() -> AbstractContextManager[Any]:
    """The leader seals a partition although the change was taken back and repeated since its decision."""

    def wrong(state: PartitionState | None, wanted: Advance) -> bool:
        return state is not None and state.phase == wanted.phase - 1

    return patch.object(partition_counts, "is_unchanged", wrong)


def removed_by_a_broker_with_an_old_image() -> AbstractContextManager[Any]:
    """A broker removes a partition without the condition that nothing has changed since it looked."""
    right = shrinking.removal

    def wrong(*arguments: Any) -> Any:
        change = right(*arguments)
        visible = tuple(
            replace(each, version=-1) if isinstance(each, Set | Delete) else each
            for each in change.writes.visible
        )
        return replace(change, writes=replace(change.writes, visible=visible))

    return patch.object(shrinking, "removal", wrong)


def replaced_leaders_take_records() -> AbstractContextManager[Any]:
    """A leader that is kept from the store removes silent followers from its in-sync set, and so commits alone."""
    return shrink_counts_before_it_is_recorded()


@planted_in_cluster("sealed records", needs=_SHRINKING)
def sealed_before_records_are_committed() -> AbstractContextManager[Any]:
    """The leader seals a partition before followers have its last records."""
    right = next_phase.judge

    def wrong(partition: DrainingPartition, limits: DrainLimits) -> DrainVerdict:
        return right(replace(partition, is_committed=True), limits)

    return patch.object(advancing, "judge", wrong)


def seals_acknowledge_waiting_records() -> AbstractContextManager[Any]:
    """The last records are acknowledged when the partition begins to refuse records, before they are committed."""
    right = Replica.set_phase

    def wrong(self: Replica, phase: PartitionPhase) -> None:
        right(self, phase)
        if phase is PartitionPhase.SEALING:
            self._producers.committed(self.log.log_end_offset)

    return patch.object(Replica, "set_phase", wrong)


def offsets_of_removed_partitions_remain() -> AbstractContextManager[Any]:
    """Groups keep the committed offsets of a removed partition."""
    return patch.object(TopicImage, "has_removed", lambda *_: False)


def offsets_of_removed_partitions_return() -> AbstractContextManager[Any]:
    """A coordinator that was not there for the removal shows the offsets when the partition is created again."""
    return patch.object(offsets, "first_offset", lambda *_: 0)
