"""Truncation offset of a follower whose log diverges from its leader's (KIP-101, KIP-279, KIP-320).

Pure. The leader reports its largest epoch that is not above the follower's last epoch, and the end offset of that
epoch. The follower's records of later epochs are not in the leader's log; records of that epoch are in both logs below
both end offsets. A follower without that epoch truncates to the end of the epoch before and fetches again: each round
drops at least one epoch, until the last epochs are the same.

The high watermark does not determine the offset, but it is a check on the leader: records below it are committed, and
every leader has them, except after an unclean election.
"""

from __future__ import annotations

from penstock.config import Durability
from penstock.model import LeaderEpoch, Offset
from penstock.storage.leader_epochs import LeaderEpochs


def diverging_epoch(
    epochs: LeaderEpochs, log_end: Offset, fetched_epoch: LeaderEpoch, offset: Offset
) -> tuple[LeaderEpoch, Offset] | None:
    """Largest epoch of the leader up to `fetched_epoch`, and its end offset; None if the logs do not diverge."""
    if fetched_epoch < 0:
        return None
    epoch, end_offset = epochs.end_of(fetched_epoch, log_end)
    if epoch == fetched_epoch and end_offset >= offset:
        return None
    return epoch, end_offset


def truncation_offset(
    epochs: LeaderEpochs, log_start: Offset, log_end: Offset, leader_epoch: LeaderEpoch, leader_end: Offset
) -> Offset | None:
    """New log end offset of the follower; None if the leader's response is invalid."""
    epoch, end = epochs.end_of(leader_epoch, log_end)
    if epoch < 0 or leader_end < 0:
        return None
    if epoch == leader_epoch:
        end = min(end, leader_end)
    return max(end, log_start)


def gives_up_committed(
    offset: Offset,
    high_watermark: Offset,
    committed_epoch: LeaderEpoch,
    unclean_epoch: LeaderEpoch,
    durability: Durability,
) -> bool:
    """True if a truncation to `offset` would remove committed records that no unclean election has lost.

    `committed_epoch` is the newest leader epoch whose leader is known to have all records below the high watermark,
    `unclean_epoch` the leader epoch of the last unclean election. With durability=os the result is always False,
    because any leader may have lost committed records in a power loss.
    """
    return offset < high_watermark and unclean_epoch <= committed_epoch and durability is not Durability.OS
