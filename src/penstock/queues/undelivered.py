"""Giving up records of a share-partition without a delivery: expired records, or too many. Loop thread only."""

from __future__ import annotations

from typing import Final

from penstock.queues.share_leader import ShareLeader
from penstock.queues.states import Reason

_LOOK_BYTES: Final = 1 << 20
"""Maximum number of bytes of the log that one call processes."""


def give_up(leader: ShareLeader, first: int, last: int, max_records: int, reason: Reason) -> tuple[int, int]:
    """Archive records from `first` to `last` below the read limit that no member holds, without a delivery.

    Return the number of offsets that were archived or settled, and the offset after the last one that was processed.
    WouldBlock if batch headers are not in memory.
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
