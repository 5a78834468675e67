"""Planted bugs of a smaller partition count."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.cluster import shrinking, topics
from penstock.cluster.image import PartitionPhase, PartitionState, RemovedPartition
from penstock.replication.replica import Replica
from penstock.server.draining import advancing, next_phase
from penstock.server.draining.next_phase import DrainingPartition, DrainLimits, DrainVerdict
from penstock.server.draining.quiet_times import QuietTimes

_SHRINKING = {"shrinking"}


@planted_in_cluster("I3", "liveness", needs=_SHRINKING)
def recreated_partitions_begin_at_zero() -> AbstractContextManager[Any]:
    """A partition that is created again has the offsets and leader epochs of the removed one."""
    return patch.object(topics, "begin_again", lambda state, removed: state)


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


@planted_in_cluster("I1", needs=_SHRINKING)
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
