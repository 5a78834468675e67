"""Which leader epoch wrote from which offset on: a partition's short history of leaders.

Epochs and start offsets both increase. Answers where a follower's log and ours part (KIP-101, KIP-279). The
log itself says the same in every batch header, so this is rebuilt from there when its snapshot is lost.
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
    """Loop thread only; `entries` is replaced, never changed, so a copy of the reference is a snapshot."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self.entries = tuple(entries)

    @property
    def latest(self) -> LeaderEpoch:
        return self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """From `start_offset` on this epoch writes. One that is not newer than what wrote before changes nothing,
        except that epochs which were to begin here have written nothing."""
        kept = tuple(entry for entry in self.entries if entry.start_offset < start_offset)
        if not kept or epoch > kept[-1].epoch:
            kept = (*kept, EpochEntry(epoch, start_offset))
        self.entries = kept

    def end_of(self, epoch: LeaderEpoch, log_end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch not above `epoch` and where it ends; (-1, -1) where that is not known."""
        entries = self.entries
        if not entries or epoch > entries[-1].epoch or epoch < 0:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        place = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        # An epoch before the first known one ends where that starts, as Kafka answers it.
        return (entries[place - 1].epoch if place else epoch), entries[place].start_offset

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        place = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[place - 1].epoch if place else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: Offset) -> None:
        """The log now ends at `end_offset`."""
        self.entries = tuple(entry for entry in self.entries if entry.start_offset < end_offset)

    def truncate_from_start(self, start_offset: Offset) -> None:
        """The log now starts at `start_offset`; the epoch that wrote there is remembered from there on."""
        place = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if place:
            current = EpochEntry(self.entries[place - 1].epoch, start_offset)
            self.entries = (current, *self.entries[place:])
