"""The leader epochs of a partition with their start offsets.

Epochs and start offsets both increase. They tell where a follower's log diverges from the leader's (KIP-101, KIP-279).
Every batch header has its epoch too, so this is rebuilt from the log if its snapshot is lost.
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
    """Leader epochs of one log. Loop thread only; `entries` is replaced and never changed, so a reference is a
    snapshot.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self.entries = tuple(entries)

    @property
    def latest(self) -> LeaderEpoch:
        return self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Note that this epoch writes from `start_offset` on.

        An epoch that is not newer than the one before adds nothing. Epochs that were to begin at or after this offset
        have written nothing and are removed.
        """
        kept = tuple(entry for entry in self.entries if entry.start_offset < start_offset)
        if not kept or epoch > kept[-1].epoch:
            kept = (*kept, EpochEntry(epoch, start_offset))
        self.entries = kept

    def end_of(self, epoch: LeaderEpoch, log_end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch not above `epoch` and its end offset; (-1, -1) if unknown."""
        entries = self.entries
        if not entries or epoch > entries[-1].epoch or epoch < 0:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        place = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        # An epoch before the first known one ends where that one starts, as Kafka responds.
        return (entries[place - 1].epoch if place else epoch), entries[place].start_offset

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        place = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[place - 1].epoch if place else NO_LEADER_EPOCH

    def may_have_written(self, epoch: LeaderEpoch, offset: Offset) -> bool:
        """Whether this epoch wrote at the offset, or may have: epochs before the first known one are forgotten when
        the first batches of a log cannot be read at its recovery.
        """
        known = self.epoch_at(offset)
        if known == NO_LEADER_EPOCH and self.entries:
            return 0 <= epoch <= self.entries[0].epoch
        return epoch == known

    def add_earlier(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Note an epoch that wrote before all known ones."""
        if self.entries and start_offset < self.entries[0].start_offset and epoch <= self.entries[0].epoch:
            later = self.entries if epoch < self.entries[0].epoch else self.entries[1:]
            self.entries = (EpochEntry(epoch, start_offset), *later)

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Forget epochs that start at or after the log end."""
        self.entries = tuple(entry for entry in self.entries if entry.start_offset < end_offset)

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Forget epochs below the log start; the epoch that wrote at the log start is kept from there on."""
        place = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if place:
            current = EpochEntry(self.entries[place - 1].epoch, start_offset)
            self.entries = (current, *self.entries[place:])
