"""What a leader may show of its partition: the high watermark, from what is appended and what is durable.

Pure: offsets in, decisions out; no disk, no clock, no awaits. Invariant: the high watermark never goes back, and
while the in-sync replicas are one machine it never passes the flushed offset (unless durability is `os`), so a
reader never sees what a power loss can take back.
"""

from __future__ import annotations

from penstock.config import Durability
from penstock.model import LeaderEpoch, Offset


class Partition:
    """The leader's view of one partition whose only in-sync replica is itself."""

    __slots__ = ("_flushed", "_log_end", "durability", "high_watermark", "leader_epoch")

    def __init__(
        self, leader_epoch: LeaderEpoch, durability: Durability, log_end: Offset, flushed: Offset
    ) -> None:
        self.leader_epoch = leader_epoch
        self.durability = durability
        self._log_end = log_end
        self._flushed = flushed
        self.high_watermark = self._bound()

    @property
    def needs_flush(self) -> bool:
        """Whether the high watermark waits for an fsync."""
        return self.high_watermark < self._log_end and self.durability is not Durability.OS

    def on_append(self, log_end: Offset) -> bool:
        """The log grew; true when the high watermark moved."""
        self._log_end = log_end
        return self._advance()

    def on_flush(self, flushed: Offset) -> bool:
        """The log is durable up to `flushed`; true when the high watermark moved."""
        self._flushed = flushed
        return self._advance()

    def set_durability(self, durability: Durability) -> bool:
        """The setting changed; true when the high watermark moved."""
        self.durability = durability
        return self._advance()

    def _bound(self) -> Offset:
        return self._log_end if self.durability is Durability.OS else min(self._log_end, self._flushed)

    def _advance(self) -> bool:
        bound = self._bound()
        if bound <= self.high_watermark:
            return False
        self.high_watermark = bound
        return True
