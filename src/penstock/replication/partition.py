"""What may be shown of a partition: the high watermark, as its leader decides it or as a follower has heard of it.

Pure: offsets in, decisions out; no disk, no clock, no awaits. Invariant: the high watermark goes back only with the
end of a follower's log. A leader moves it over what every set that may be the recorded in-sync set holds; while it is
alone in sync, never past the flushed offset (unless durability is `os`), so that a reader never sees what a power
loss can take back.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config import Durability
from penstock.model import NO_LEADER_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, Offset
from penstock.replication.in_sync import InSync, InSyncChange

_UNKNOWN = Offset(-1)


class Partition:
    """Follows nobody until it is told to lead or to follow."""

    __slots__ = (
        "_flushed",
        "_in_sync",
        "_is_alone",
        "_log_end",
        "committed_epoch",
        "durability",
        "high_watermark",
        "is_leader",
        "leader_epoch",
        "waits_for_store",
    )

    def __init__(
        self,
        durability: Durability,
        log_end: Offset,
        flushed: Offset,
        high_watermark: Offset,
        committed_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    ) -> None:
        self.leader_epoch = NO_LEADER_EPOCH
        self.durability = durability
        self.high_watermark = min(high_watermark, log_end)
        self.committed_epoch = committed_epoch
        """The leader epoch in which everything below the high watermark was last known to be in the leader's log."""
        self.is_leader = False
        self._log_end = log_end
        self._flushed = flushed
        self._in_sync: InSync | None = None
        self._is_alone = False
        self.waits_for_store = False
        """Whether it leads, and what is appended waits until another in-sync set is recorded."""

    # --- roles

    def lead(self, leader_epoch: LeaderEpoch, in_sync: InSync) -> bool:
        """Decide what is committed from now on; true when the high watermark moved."""
        self.leader_epoch = self.committed_epoch = leader_epoch
        self.is_leader = True
        self._in_sync = in_sync
        return self.on_in_sync()

    def follow(self, leader_epoch: LeaderEpoch) -> None:
        """Another leads, or nobody."""
        self.leader_epoch = leader_epoch
        self.is_leader = self._is_alone = self.waits_for_store = False
        self._in_sync = None

    @property
    def in_sync(self) -> InSync:
        """Of a leader. Who changes it calls `on_in_sync`."""
        assert self._in_sync is not None, "only a leader knows who is in sync"
        return self._in_sync

    @property
    def is_caught_up(self) -> bool:
        """Whether the leader knows how far it is committed: everything from before its epoch is."""
        return self._in_sync is not None and self.high_watermark >= self._in_sync.epoch_start

    @property
    def is_held(self) -> bool:
        """Whether it leads, and commits nothing because eligible leaders are recorded outside of the in-sync set."""
        return self._in_sync is not None and self._in_sync.has_eligible

    def on_in_sync(self) -> bool:
        """The in-sync set, or what is known of its members, has changed; true when the high watermark moved."""
        self._is_alone = self.in_sync.is_alone
        self.waits_for_store = self.in_sync.must_be_written
        return self._advance()

    # --- the log

    @property
    def needs_flush(self) -> bool:
        """Whether the leader's high watermark waits for an fsync."""
        if self._flushed >= self._log_end or self.durability is Durability.OS:
            return False
        return self._is_alone or (self._in_sync is not None and self._in_sync.needs_flush(self.durability))

    def on_append(self, log_end: Offset) -> bool:
        """The log grew; true when the high watermark moved."""
        self._log_end = log_end
        return self._advance()

    def on_flush(self, flushed: Offset) -> bool:
        """The log is durable up to `flushed`; true when the high watermark moved."""
        self._flushed = flushed
        return self._advance()

    def on_truncate(self, log_end: Offset, flushed: Offset, high_watermark: Offset) -> None:
        """A follower's log ends elsewhere now."""
        assert not self.is_leader, "a leader's log is never cut"
        self._log_end = log_end
        self._flushed = flushed
        self.high_watermark = high_watermark

    def on_heard(self, high_watermark: Offset) -> bool:
        """A follower hears of its leader's high watermark; true when its own moved."""
        bound = min(high_watermark, self._log_end)
        has_moved = bound > self.high_watermark
        self.committed_epoch = self.leader_epoch
        self.high_watermark = max(self.high_watermark, bound)
        return has_moved

    def set_durability(self, durability: Durability) -> bool:
        """The setting changed; true when the high watermark moved."""
        self.durability = durability
        return self._advance()

    def _advance(self) -> bool:
        if self._is_alone:
            bound = self._log_end
            if self.durability is not Durability.OS and self._flushed < bound:
                bound = self._flushed
        elif self._in_sync is not None:
            bound = self._in_sync.committed_end(self._log_end, self._flushed, self.durability)
        else:
            return False
        if bound <= self.high_watermark:
            return False
        self.high_watermark = bound
        return True

    # --- who is in sync

    def on_follower_fetch(
        self,
        replica: BrokerId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        flushed: Offset,
        now_ms: int,
        log_start: Offset = _UNKNOWN,
    ) -> bool:
        """A follower has everything below `offset`; true when the high watermark moved."""
        counted = self.in_sync.on_fetch(
            replica, broker_epoch, offset, flushed, self._log_end, now_ms, log_start
        )
        return counted and self._advance()

    def propose(self, alive: Mapping[BrokerId, BrokerEpoch], lag_ms: int, now_ms: int) -> InSyncChange | None:
        """See `InSync.propose`."""
        change = self.in_sync.propose(
            self.high_watermark, self._log_end, self._flushed, self.durability, alive, lag_ms, now_ms
        )
        self._is_alone = self.in_sync.is_alone
        return change
