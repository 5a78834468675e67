"""Role of a replica in its partition, and its high watermark.

Pure: no disk, no clock, no awaits. The log holds the log end offset, the flushed offset and the high
watermark; only this class raises the high watermark. Invariant: the high watermark decreases only when a
follower's log is truncated. A leader raises it up to the offset below which all members of every possible in-sync set
have all records. A leader that is alone in sync never raises it above the flushed offset (unless durability is `os`),
so that consumers never read records that a power loss can remove.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.config import Durability
from penstock.model import NO_LEADER_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, Offset
from penstock.replication.in_sync import InSync, InSyncChange

_UNKNOWN = Offset(-1)


class LogOffsets(Protocol):
    """Offsets of a replica's log, as `storage.log.Log` holds them."""

    log_end_offset: Offset
    flushed_offset: Offset
    high_watermark: Offset
    committed_epoch: LeaderEpoch


class ReplicatedPartition:
    """Leader or follower role of one replica. It begins as a follower without a leader."""

    __slots__ = (
        "_in_sync",
        "_is_alone",
        "_log",
        "durability",
        "is_leader",
        "leader_epoch",
        "waits_for_store",
    )

    def __init__(self, durability: Durability, log: LogOffsets) -> None:
        self.leader_epoch = NO_LEADER_EPOCH
        self.durability = durability
        log.high_watermark = min(log.high_watermark, log.log_end_offset)
        self._log = log
        self.is_leader = False
        self._in_sync: InSync | None = None
        self._is_alone = False
        self.waits_for_store = False
        """True if appended records cannot be committed until another in-sync set is recorded."""

    # --- roles

    def lead(self, leader_epoch: LeaderEpoch, in_sync: InSync) -> bool:
        """Become the leader in a new leader epoch; True if the high watermark moved."""
        self.leader_epoch = self._log.committed_epoch = leader_epoch
        self.is_leader = True
        self._in_sync = in_sync
        return self.on_in_sync()

    def follow(self, leader_epoch: LeaderEpoch) -> None:
        """Become a follower in a leader epoch in which another broker leads, or no broker."""
        self.leader_epoch = leader_epoch
        self.is_leader = self._is_alone = self.waits_for_store = False
        self._in_sync = None

    @property
    def in_sync(self) -> InSync:
        """In-sync set of a leader. A caller that changes it must call `on_in_sync` afterwards."""
        assert self._in_sync is not None, "only a leader knows the in-sync replicas"
        return self._in_sync

    @property
    def is_caught_up(self) -> bool:
        """True if all records from before the leader epoch are committed, so that the high watermark is exact."""
        return self._in_sync is not None and self._log.high_watermark >= self._in_sync.epoch_start

    @property
    def is_held(self) -> bool:
        """True if this leader commits no records because eligible leader replicas are recorded."""
        return self._in_sync is not None and self._in_sync.has_eligible

    def on_in_sync(self) -> bool:
        """Apply a change of the in-sync set or of its members; true when the high watermark moved."""
        self._is_alone = self.in_sync.is_alone
        self.waits_for_store = self.in_sync.must_be_written
        return self.advance()

    # --- the log

    @property
    def needs_flush(self) -> bool:
        """True when the leader's high watermark waits for an fsync."""
        if self.durability is Durability.OS or self._log.flushed_offset >= self._log.log_end_offset:
            return False
        return self._is_alone or (self._in_sync is not None and self._in_sync.needs_flush(self.durability))

    def advance(self) -> bool:
        """Raise a leader's high watermark after the log grew or was flushed; true when it moved."""
        log = self._log
        if self._is_alone:
            bound = log.log_end_offset
            if self.durability is not Durability.OS and log.flushed_offset < bound:
                bound = log.flushed_offset
        elif self._in_sync is not None:
            bound = self._in_sync.committed_end(log.log_end_offset, log.flushed_offset, self.durability)
        else:
            return False
        if bound <= log.high_watermark:
            return False
        log.high_watermark = bound
        return True

    def on_leader_high_watermark(self, high_watermark: Offset) -> bool:
        """Raise a follower's high watermark to its leader's, up to the log end; true when it moved."""
        log = self._log
        bound = min(high_watermark, log.log_end_offset)
        log.committed_epoch = self.leader_epoch
        if bound <= log.high_watermark:
            return False
        log.high_watermark = bound
        return True

    def set_durability(self, durability: Durability) -> bool:
        """Apply a changed setting; true when the high watermark moved."""
        self.durability = durability
        return self.advance()

    # --- in-sync replicas

    def on_follower_fetch(
        self,
        replica: BrokerId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        flushed: Offset,
        now_ms: int,
        log_start: Offset = _UNKNOWN,
    ) -> bool:
        """Record that a follower has all records below `offset`; True if the high watermark moved."""
        counted = self.in_sync.on_fetch(
            replica, broker_epoch, offset, flushed, self._log.log_end_offset, now_ms, log_start
        )
        return counted and self.advance()

    def propose(self, alive: Mapping[BrokerId, BrokerEpoch], lag_ms: int, now_ms: int) -> InSyncChange | None:
        """Propose a change of the in-sync set; see `InSync.propose`."""
        log = self._log
        change = self.in_sync.propose(
            log.high_watermark,
            log.log_end_offset,
            log.flushed_offset,
            self.durability,
            alive,
            lag_ms,
            now_ms,
        )
        self._is_alone = self.in_sync.is_alone
        return change
