"""The leader epochs of a partition with their start offsets.

Epochs and start offsets both increase. They show where a follower's log diverges from the leader's (KIP-101, KIP-279).
Every batch header contains its epoch, so the list can be rebuilt from the log if the snapshot is lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from penstock.model import NO_LEADER_EPOCH, LeaderEpoch, Offset

NO_OFFSET = Offset(-1)


class EpochEntry(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset


class LeaderEpochs:
    """Leader epochs of one log. Loop thread only. The tuple `entries` is replaced and never changed, so that a
    reference to it is a snapshot.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self.entries = tuple(entries)

    @property
    def latest(self) -> LeaderEpoch:
        return self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Record that `epoch` writes from `start_offset` on.

        An epoch that is not newer than the last one adds no entry. Entries that start at or after `start_offset` are
        removed, because their epochs have written nothing.
        """
        kept = tuple(entry for entry in self.entries if entry.start_offset < start_offset)
        if not kept or epoch > kept[-1].epoch:
            kept = (*kept, EpochEntry(epoch, start_offset))
        self.entries = kept

    def end_of(self, epoch: LeaderEpoch, log_end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest known epoch not above `epoch`, and its end offset; (-1, -1) if unknown."""
        entries = self.entries
        if not entries or epoch > entries[-1].epoch or epoch < 0:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        place = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        # An epoch before the first known epoch ends where the first known epoch starts, as in Kafka's responses.
        return (entries[place - 1].epoch if place else epoch), entries[place].start_offset

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        place = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[place - 1].epoch if place else NO_LEADER_EPOCH

    def may_have_written(self, epoch: LeaderEpoch, offset: Offset) -> bool:
        """True if `epoch` wrote at the offset, or may have. An offset below the first known epoch may have any epoch up
        to that one: earlier epochs are unknown if recovery could not read the first batches of the log.
        """
        known = self.epoch_at(offset)
        if known == NO_LEADER_EPOCH and self.entries:
            return 0 <= epoch <= self.entries[0].epoch
        return epoch == known

    def add_earlier(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Add an epoch that starts below all known epochs."""
        if self.entries and start_offset < self.entries[0].start_offset and epoch <= self.entries[0].epoch:
            later = self.entries if epoch < self.entries[0].epoch else self.entries[1:]
            self.entries = (EpochEntry(epoch, start_offset), *later)

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Remove epochs that start at or after `end_offset`, the new log end."""
        self.entries = tuple(entry for entry in self.entries if entry.start_offset < end_offset)

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Remove epochs below `start_offset`, the new log start; the epoch of the log start now starts there."""
        place = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if place:
            current = EpochEntry(self.entries[place - 1].epoch, start_offset)
            self.entries = (current, *self.entries[place:])
