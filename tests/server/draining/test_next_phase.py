"""Decision of a leader about a partition that goes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.image import PartitionPhase
from penstock.server.draining.next_phase import DrainingPartition, DrainLimits, GroupPosition, judge

LIMITS = DrainLimits(quiet_ms=10_000, max_ms=60_000)
READY = DrainingPartition(
    PartitionPhase.DRAINING,
    waits_for_groups=True,
    draining_ms=20_000,
    quiet_ms=10_000,
    has_open_transaction=False,
    is_committed=True,
    behind=(),
)
BEHIND = (GroupPosition("billing", 7),)


def test_a_quiet_partition_stops_taking_records() -> None:
    assert judge(READY, LIMITS).phase is PartitionPhase.SEALING


@pytest.mark.parametrize(
    ("partition", "reason"),
    [
        (replace(READY, quiet_ms=9_999), "no write for 10 s"),
        (replace(READY, has_open_transaction=True), "a transaction is open"),
        (replace(READY, is_committed=False), "not committed"),
        (replace(READY, behind=BEHIND), "group billing is behind, at offset 7"),
        (replace(READY, behind=None), "not all group coordinators"),
    ],
)
def test_partition_is_not_sealed_while_any_condition_is_unmet(
    partition: DrainingPartition, reason: str
) -> None:
    verdict = judge(partition, LIMITS)
    assert verdict.phase is None
    assert any(reason in each for each in verdict.reasons)


def test_lagging_groups_do_not_delay_sealing_if_not_waited_for() -> None:
    partition = replace(READY, waits_for_groups=False, behind=None)
    assert judge(partition, LIMITS).phase is PartitionPhase.SEALING


def test_a_partition_that_drains_for_too_long_stops_taking_records() -> None:
    partition = replace(READY, draining_ms=60_000, quiet_ms=0, has_open_transaction=True, behind=BEHIND)
    verdict = judge(partition, LIMITS)
    assert (verdict.phase, verdict.is_overdue) == (PartitionPhase.SEALING, True)


@given(st.builds(DrainingPartition))
def test_partition_with_open_transaction_or_uncommitted_records_is_not_sealed(
    partition: DrainingPartition,
) -> None:
    verdict = judge(partition, LIMITS)
    if verdict.phase is PartitionPhase.SEALED:
        assert partition.phase is PartitionPhase.SEALING
        assert not partition.has_open_transaction
        assert partition.is_committed
    assert verdict.phase in (None, partition.phase + 1)
