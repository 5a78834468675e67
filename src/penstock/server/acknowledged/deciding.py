"""Decision for topics with `retention.acknowledged`: the new log start offset of a partition, or the reason why nothing
is deleted. Pure.

A record may be deleted when every queue and group of the topic, and of its views, has settled it. Nothing is deleted
while the position of a group is unknown, while a coordinator has not responded, or if there is no queue or group.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

UNKNOWN: Final = -1
"""Position of a group that reads a topic and has not committed an offset of the partition."""
NO_READERS: Final = "no queue or group reads the topic"
NOT_ANSWERED: Final = "not all group coordinators have answered"


class SettledPosition(NamedTuple):
    """Offset below which a group has settled all records of a partition."""

    group_id: str
    offset: int


class DeletionVerdict(NamedTuple):
    start_offset: int
    """Offset below which all records may be deleted; the current log start offset if no record may be deleted."""
    reason: str = ""
    """Reason why nothing is deleted, or the groups that have not settled the next records; empty if nothing blocks
    deletion.
    """


def decide(
    positions: Sequence[SettledPosition] | None, queues: Collection[str], log_start_offset: int, limit: int
) -> DeletionVerdict:
    """Decide from the positions of groups in a partition, and the names of the topic's queues. `positions` is None if a
    coordinator has not responded.

    `limit` bounds deletion in any case: it is the lowest of last stable offset, archived offset and first pending
    message.
    """
    if positions is None:
        return DeletionVerdict(log_start_offset, NOT_ANSWERED)
    known = {each.group_id for each in positions}
    missing = sorted(set(queues) - known)
    unknown = sorted({each.group_id for each in positions if each.offset < 0} | set(missing))
    if unknown:
        return DeletionVerdict(log_start_offset, f"the position of group {_names(unknown)} is unknown")
    if not positions:
        return DeletionVerdict(log_start_offset, NO_READERS)
    lowest = min(each.offset for each in positions)
    start_offset = max(log_start_offset, min(lowest, limit))
    holding = sorted({each.group_id for each in positions if each.offset == lowest})
    reason = f"group {_names(holding)} has settled records up to offset {lowest}" if lowest < limit else ""
    return DeletionVerdict(start_offset, reason)


def _names(groups: Sequence[str]) -> str:
    shown = ", ".join(groups[:5])
    return shown if len(groups) <= 5 else f"{shown} and {len(groups) - 5} more"
