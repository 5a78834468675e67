"""Truncation offset of a follower whose log diverges from its leader's (KIP-101, KIP-279, KIP-320).

Pure. The leader names its largest epoch that is not above the follower's last one, and the end offset of
that epoch. Records of later epochs in the follower's log are not the leader's; of that epoch, only records
below both end offsets are. A follower without such an epoch truncates to the end of the epoch before and
fetches again: each round drops at least one epoch, until the last epochs are the same.

The high watermark does not decide the offset, but it is a check on the leader: records below it are
committed, and every legitimate leader has them, unless an election has given them up since.
"""

from __future__ import annotations

from penstock.config import Durability
from penstock.model import LeaderEpoch, Offset
from penstock.storage.leader_epochs import LeaderEpochs


def diverging_epoch(
    epochs: LeaderEpochs, log_end: Offset, fetched_epoch: LeaderEpoch, offset: Offset
) -> tuple[LeaderEpoch, Offset] | None:
    """Largest epoch of the leader up to `fetched_epoch` and its end offset; None where the fetcher's log does
    not diverge.
    """
    if fetched_epoch < 0:
        return None
    epoch, end_offset = epochs.end_of(fetched_epoch, log_end)
    if epoch == fetched_epoch and end_offset >= offset:
        return None
    return epoch, end_offset


def truncation_offset(
    epochs: LeaderEpochs, log_start: Offset, log_end: Offset, leader_epoch: LeaderEpoch, leader_end: Offset
) -> Offset | None:
    """New log end offset of the follower; None for a response that no leader can give."""
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
    """True when a truncation to `offset` would remove committed records that no election has given up.

    `committed_epoch` is the leader epoch in which the high watermark was last known to be right,
    `unclean_epoch` that of the last election of a leader that may lack committed records. With
    durability=os a power loss may take them from any leader.
    """
    return offset < high_watermark and unclean_epoch <= committed_epoch and durability is not Durability.OS
