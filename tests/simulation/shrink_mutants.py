"""Planted bugs of a smaller partition count."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.cluster import topics
from penstock.cluster.image import PartitionPhase
from penstock.replication.replica import Replica
from penstock.server.draining import draining, next_phase
from penstock.server.draining.next_phase import DrainingPartition, DrainLimits, Verdict

_SHRINKING = {"shrinking"}


@planted_in_cluster("I3", "liveness", needs=_SHRINKING)
def recreated_partitions_begin_at_zero() -> AbstractContextManager[Any]:
    """A partition that is created again has the offsets and leader epochs of the removed one."""
    return patch.object(topics, "begin_again", lambda state, removed: state)


@planted_in_cluster("sealed log", needs=_SHRINKING)
def sealed_partitions_take_records() -> AbstractContextManager[Any]:
    """A leader checks the phase of a partition for markers only."""
    return patch.object(Replica, "_check_phase", lambda *_, **__: None)


@planted_in_cluster("I1", needs=_SHRINKING)
def sealed_partitions_are_removed_before_their_records_expire() -> AbstractContextManager[Any]:
    """The leader removes a sealed partition although its records are needed."""
    end = draining._end_for_removal
    return patch.object(draining, "_end_for_removal", lambda replica, is_dropped: end(replica, True))


@planted_in_cluster("sealed log", needs=_SHRINKING)
def quiet_time_never_passes() -> AbstractContextManager[Any]:
    """Every look at a draining partition begins its quiet time anew."""
    right = next_phase.judge

    def wrong(partition: DrainingPartition, limits: DrainLimits) -> Verdict:
        if partition.phase is PartitionPhase.DRAINING:
            return Verdict()
        return right(partition, limits)

    return patch.object(draining, "judge", wrong)
