"""Decision of a leader about a partition that is being removed: its next phase, or the reasons to wait. Pure.

A draining partition becomes SEALING, and refuses records from then on, when nothing was written for
`partition.drain.quiet.ms`, its records are committed, no transaction is open, no delayed message is pending and no
group has to read it further; or when it has drained for `partition.drain.max.ms`. It becomes SEALED when its records
are committed, no transaction is open and no delayed message is pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.cluster.image import PartitionPhase


class GroupPosition(NamedTuple):
    """Offset that a consumer group has committed, or start offset of a share group."""

    group_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class DrainLimits:
    quiet_ms: int
    max_ms: int


@dataclass(frozen=True, slots=True)
class DrainingPartition:
    phase: PartitionPhase
    waits_for_groups: bool
    draining_ms: int
    """Time in milliseconds since the partition began to drain."""
    quiet_ms: int
    """Time in milliseconds since the last write."""
    has_open_transaction: bool
    is_committed: bool
    """True if the high watermark has reached the log end offset."""
    has_delayed: bool = False
    """True if delayed messages are pending, or the leader has not read all of them yet."""
    behind: Sequence[GroupPosition] | None = None
    """Groups that have not read all records; None while not all coordinators have responded."""


@dataclass(frozen=True, slots=True)
class DrainVerdict:
    phase: PartitionPhase | None = None
    """Next phase; None if the partition has to wait."""
    reasons: tuple[str, ...] = ()
    """Conditions for which the partition waits."""
    groups_behind: int = 0
    is_overdue: bool = False
    """True if the partition changes its phase because it has drained for too long."""


def judge(partition: DrainingPartition, limits: DrainLimits) -> DrainVerdict:
    if partition.phase is PartitionPhase.DRAINING:
        return _judge_draining(partition, limits)
    if partition.phase is PartitionPhase.SEALING:
        reasons = _unfinished(partition)
        return DrainVerdict(None if reasons else PartitionPhase.SEALED, reasons)
    return DrainVerdict()


def _judge_draining(partition: DrainingPartition, limits: DrainLimits) -> DrainVerdict:
    if partition.draining_ms >= limits.max_ms:
        return DrainVerdict(PartitionPhase.SEALING, is_overdue=True)
    reasons = []
    if partition.quiet_ms < limits.quiet_ms:
        left_ms = limits.quiet_ms - partition.quiet_ms
        reasons.append(f"no write for {_seconds(partition.quiet_ms)}, {_seconds(left_ms)} remain")
    reasons += _unfinished(partition)
    if partition.waits_for_groups:
        reasons += _behind(partition.behind)
    behind = len(partition.behind or ()) if partition.waits_for_groups else 0
    return DrainVerdict(None if reasons else PartitionPhase.SEALING, tuple(reasons), behind)


def _unfinished(partition: DrainingPartition) -> tuple[str, ...]:
    found = (
        (partition.has_open_transaction, "a transaction is open"),
        (not partition.is_committed, "records are not committed"),
        (partition.has_delayed, "delayed messages are pending"),
    )
    return tuple(text for is_so, text in found if is_so)


def _behind(groups: Sequence[GroupPosition] | None) -> list[str]:
    if groups is None:
        return ["not all group coordinators have answered"]
    return [f"group {each.group_id} is behind, at offset {each.offset}" for each in groups]


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.0f} s"
