"""Records of a share-partition that are given up without a delivery: expired, or too many. Loop thread only."""

from __future__ import annotations

from typing import Final

from penstock.queues.share_leader import ShareLeader
from penstock.queues.states import Reason

_LOOK_BYTES: Final = 1 << 20
"""Number of bytes of the log that are looked at in one call."""


def give_up(leader: ShareLeader, first: int, last: int, max_records: int, reason: Reason) -> tuple[int, int]:
    """Archive records between two offsets that no member holds, below the read limit, without a delivery.

    Returns the number of offsets that are not of interest any more, and the offset behind the last one that was looked
    at. WouldBlock if batch headers are not in memory.
    """
    partition = leader.partition
    if partition is None or leader.is_stalled:
        return 0, first
    partition.on_log_start(leader.replica.log.log_start_offset)
    below = leader.read_limit
    first, last = max(first, partition.start_offset), min(last, below - 1)
    if first > last:
        return 0, first
    spans = leader.source.spans(first, last, _LOOK_BYTES, below, is_committed=leader.settings.is_committed)
    found = partition.give_up(spans, first, last, max_records, reason)
    if partition.has_changes:
        leader.store(None)
        leader.wake()
    return found
