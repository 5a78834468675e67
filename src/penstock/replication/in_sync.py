"""In-sync replicas of a partition as its leader tracks them, and the changes of the recorded in-sync set.

Pure. The in-sync set is the one recorded in the store. During a change, or if its outcome is unknown, each of the
possible sets may be the recorded one: a record is then committed only when every member of each set has it. If all
members of a set run on one machine, they must have fsynced the record too, because one power loss hits all of them, and
any of them may be elected afterwards. A follower joins only if it has all records that may be committed, and all
records from before the leader epoch. Under a steady load a follower would always lack the newest records, so new
records also wait for followers that are close to the log end. Every `now_ms` is monotonic time: a wall clock that is
set forward would remove healthy followers, and one that is set back would keep hung followers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.config import Durability
from penstock.model import BrokerEpoch, BrokerId, Offset

_UNKNOWN = Offset(-1)
_NO_EPOCH = BrokerEpoch(-1)
_NEVER = -(2**62)
"""Time in milliseconds that is earlier than any time of the monotonic clock."""


@dataclass(slots=True)
class Follower:
    """State of one follower in the present leader epoch."""

    caught_up_ms: int
    """Time in milliseconds of the leader's monotonic clock at which the follower last had all records of the leader."""
    log_end: Offset = _UNKNOWN
    """Log end offset of the follower; unknown until it fetches in this leader epoch."""
    flushed: Offset = _UNKNOWN
    mark: Offset = _UNKNOWN
    """Log end offset of the leader at `mark_ms`. Replaced by the present one once the follower has reached it."""
    mark_ms: int = 0
    reached_ms: int = _NEVER
    """Newest time in milliseconds for which the follower is known to have reached the leader's log end at that time."""
    log_start: Offset = _UNKNOWN
    """Log start offset of the follower."""
    broker_epoch: BrokerEpoch = _NO_EPOCH
    """Broker epoch of the follower's last fetch. After a restart the broker may have fewer records."""
    is_damaged: bool = False
    """True if the follower's log is damaged, so that it lacks records below `log_end`."""


@dataclass(frozen=True, slots=True)
class InSyncChange:
    """Change of the recorded in-sync set. It is written on condition that the partition epoch is `partition_epoch`."""

    members: frozenset[BrokerId]
    partition_epoch: int
    flush_to: Offset | None
    """Offset up to which the leader must have fsynced before the write, because all members run on one machine; None
    if no fsync is needed.
    """
    joining: Mapping[BrokerId, BrokerEpoch] = field(default_factory=dict)
    """Members that join the set, with the broker epoch in which each had all records."""
    keeps_eligible: bool = False
    """True if leaving replicas are recorded as eligible leader replicas, because the set is below min.insync.replicas.
    False to record no eligible leader replicas.
    """
    committed: Offset = _UNKNOWN
    """High watermark of the leader. It does not move while eligible leader replicas are recorded."""
    log_end: Offset = _UNKNOWN
    """Log end offset of the leader."""


@dataclass(frozen=True, slots=True)
class _Possible:
    """In-sync set that may be the recorded one."""

    members: frozenset[BrokerId]
    has_eligible: bool
    """True if eligible leader replicas are recorded with the set."""


@dataclass(frozen=True, slots=True)
class _Condition:
    """Conditions for the commit of a record that follow from one possible in-sync set."""

    followers: tuple[Follower, ...]
    is_one_machine: bool
    is_held: bool = False
    """True if no record may be committed while this set may be the recorded one."""

    def needs_flush(self, durability: Durability) -> bool:
        return durability is Durability.FSYNC or (self.is_one_machine and durability is Durability.AUTO)


class InSync:
    """In-sync set of one leader epoch. Parameters `alive` are the registered brokers with their broker epochs."""

    def __init__(
        self,
        me: BrokerId,
        replicas: Iterable[BrokerId],
        recorded: frozenset[BrokerId],
        partition_epoch: int,
        epoch_start: Offset,
        machines: Mapping[BrokerId, str],
        now_ms: int,
        *,
        has_eligible: bool = False,
        min_in_sync: int = 1,
    ) -> None:
        self.recorded = recorded
        self.has_eligible = has_eligible
        """True if eligible leader replicas outside of the set are recorded."""
        self.partition_epoch = partition_epoch
        self._me = me
        self.epoch_start = epoch_start
        self._min_in_sync = min_in_sync
        self._pending: _Possible | None = None
        self._doubtful: frozenset[_Possible] = frozenset()
        """Sets of changes whose outcome is unknown and that can still be made in the present partition epoch."""
        self._is_alone = False
        """True if the last proposed set has no followers."""
        self._machines = machines
        self._leaving: frozenset[BrokerId] = frozenset()
        self._awaited: frozenset[BrokerId] = frozenset()
        """Followers outside of the set that are close to the log end, so that new records wait for them."""
        self.followers: dict[BrokerId, Follower] = {}
        self._conditions: tuple[_Condition, ...] = ()
        self.set_replicas(replicas, now_ms)

    @property
    def is_alone(self) -> bool:
        """True if the leader's own log alone decides which records are committed."""
        return (
            len(self._conditions) == 1
            and not self._conditions[0].followers
            and not self._conditions[0].is_held
        )

    @property
    def must_be_written(self) -> bool:
        """True if the high watermark waits for a change of the recorded set that can be written now: the removal of a
        member whose broker is not registered, or of eligible leader replicas once the set has min.insync.replicas.
        """
        has_dead = any(member not in self._machines for member in self.recorded if member != self._me)
        return has_dead or (self.has_eligible and self._is_enough(self.recorded))

    def set_min_in_sync(self, min_in_sync: int) -> None:
        """Set min.insync.replicas. A smaller set keeps eligible leader replicas, unless it has all replicas."""
        self._min_in_sync = min_in_sync

    def _is_enough(self, members: frozenset[BrokerId]) -> bool:
        return len(members) >= min(self._min_in_sync, len(self.followers) + 1)

    def set_replicas(self, replicas: Iterable[BrokerId], now_ms: int) -> None:
        wanted = (set(replicas) | self.recorded) - {self._me}
        self.followers = {
            replica: self.followers.get(replica) or Follower(now_ms) for replica in sorted(wanted)
        }
        self._awaited &= self.followers.keys()
        self._refresh()

    def set_machines(self, machines: Mapping[BrokerId, str]) -> None:
        """Set the machine of each registered broker. Other brokers count as running on the leader's machine."""
        self._machines = machines
        self._refresh()

    def set_leaving(self, leaving: frozenset[BrokerId]) -> bool:
        """Set the brokers that have to leave the set and may not join it; True if one of them is a member now."""
        self._leaving = leaving - {self._me}
        return bool(self.recorded & self._leaving)

    def _refresh(self) -> None:
        possible = {_Possible(self.recorded, self.has_eligible), *self._doubtful}
        if self._pending is not None:
            possible.add(self._pending)
        if self._awaited:
            possible.add(_Possible(self.recorded | self._awaited, has_eligible=False))
        self._conditions = tuple(
            _Condition(
                tuple(self.followers[member] for member in each.members if member != self._me),
                self._is_one_machine(each.members),
                each.has_eligible,
            )
            for each in possible
        )

    def _is_one_machine(self, members: Iterable[BrokerId]) -> bool:
        mine = self._machines.get(self._me)
        return all(self._machines.get(member, mine) == mine for member in members)

    # --- committed records

    def committed_end(self, log_end: Offset, flushed: Offset, durability: Durability) -> Offset:
        """Offset below which all records are committed; -1 if the high watermark may not move."""
        end = log_end
        for condition in self._conditions:
            if condition.is_held:
                return _UNKNOWN
            if condition.needs_flush(durability):
                end = min(end, flushed)
                for follower in condition.followers:
                    end = min(end, follower.flushed)
            else:
                for follower in condition.followers:
                    end = min(end, follower.log_end)
        return end

    def low_watermark(self, log_start: Offset) -> Offset:
        """Lowest log start offset of the recorded members and the leader, whose log start offset is `log_start`."""
        members = (self.followers[member] for member in self.recorded if member != self._me)
        return min((member.log_start for member in members), default=log_start)

    def needs_flush(self, durability: Durability) -> bool:
        """True if the leader must fsync a record before it is committed."""
        return any(condition.needs_flush(durability) for condition in self._conditions)

    # --- followers

    def on_fetch(
        self,
        replica: BrokerId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        flushed: Offset,
        leader_log_end: Offset,
        now_ms: int,
        log_start: Offset = _UNKNOWN,
    ) -> bool:
        """Record that a follower has all records below `offset`; False if it has no replica or its epoch is old."""
        follower = self.followers.get(replica)
        if follower is None or broker_epoch < follower.broker_epoch:
            return False
        if offset >= leader_log_end:
            follower.caught_up_ms = follower.reached_ms = now_ms
        elif offset >= follower.mark >= 0:
            # The follower has reached the mark. The mark moves only then: under constant load a follower that is a few
            # fetches behind never reaches the log end that the leader had at the fetch before.
            follower.caught_up_ms = max(follower.caught_up_ms, follower.mark_ms)
            follower.reached_ms = follower.mark_ms
        follower.broker_epoch = broker_epoch
        follower.log_end = offset
        follower.flushed = min(flushed, offset)
        follower.log_start = log_start
        if offset >= follower.mark:
            follower.mark, follower.mark_ms = leader_log_end, now_ms
        return True

    def on_damage(self, replica: BrokerId, broker_epoch: BrokerEpoch, *, is_damaged: bool) -> None:
        """Record if a follower's log is damaged; called before `on_fetch`."""
        follower = self.followers.get(replica)
        if follower is not None and broker_epoch >= follower.broker_epoch:
            follower.is_damaged = is_damaged

    @property
    def is_in_doubt(self) -> bool:
        """True if no follower is in sync and the outcome of a write is unknown: another broker may lead by now."""
        return self._is_alone and bool(self._doubtful)

    # --- changing the set

    def propose(
        self,
        high_watermark: Offset,
        log_end: Offset,
        flushed: Offset,
        durability: Durability,
        alive: Mapping[BrokerId, BrokerEpoch],
        lag_ms: int,
        now_ms: int,
    ) -> InSyncChange | None:
        """Begin a change of the recorded set; None if no change is needed, or a change is in progress.

        The caller ends the change with `recorded_as`, `refused` or `unknown`.
        """
        if self._pending is not None:
            return None
        self._await_close(alive, lag_ms, now_ms)
        members = {
            member
            for member in self.recorded
            if member == self._me
            or not (member in self._leaving or self._is_slow(member, log_end, alive, lag_ms, now_ms))
        }
        members |= {
            replica
            for replica, follower in self.followers.items()
            if self.may_join(replica, high_watermark) and alive.get(replica) == follower.broker_epoch
        }
        self._is_alone = members == {self._me}
        is_one_machine = self._is_one_machine(members)
        if _Condition((), is_one_machine).needs_flush(durability):
            unproven = {
                member
                for member in members
                if member != self._me and self.followers[member].flushed < high_watermark
            }
            if any(self.followers[member].log_end == _UNKNOWN for member in unproven):
                return None  # wait for the follower's first fetch; without a fetch it is removed as slow
            members -= unproven
        wanted = frozenset(members)
        keeps_eligible = not self._is_enough(wanted)
        if wanted == self.recorded and not self._doubtful and (keeps_eligible or not self.has_eligible):
            return None
        has_eligible = keeps_eligible and (self.has_eligible or not self.recorded <= wanted)
        self._pending = _Possible(wanted, has_eligible)
        self._refresh()
        must_flush = durability is not Durability.OS and is_one_machine and flushed < log_end
        joining = {member: self.followers[member].broker_epoch for member in wanted - self.recorded}
        flush_to = log_end if must_flush else None
        return InSyncChange(
            wanted, self.partition_epoch, flush_to, joining, has_eligible, high_watermark, log_end
        )

    def _await_close(self, alive: Mapping[BrokerId, BrokerEpoch], lag_ms: int, now_ms: int) -> None:
        """Let new records wait for followers outside of the set that are at most a quarter of `lag_ms` behind."""
        awaited = frozenset(
            replica
            for replica, follower in self.followers.items()
            if replica not in self.recorded | self._leaving
            and not follower.is_damaged
            and alive.get(replica) == follower.broker_epoch
            and now_ms - follower.reached_ms <= lag_ms // 4
        )
        if awaited != self._awaited:
            self._awaited = awaited
            self._refresh()

    def may_join(self, replica: BrokerId, high_watermark: Offset) -> bool:
        """True if a replica outside of the set has all records that may be committed."""
        follower = self.followers.get(replica)
        return (
            follower is not None
            and replica not in self.recorded
            and replica not in self._leaving
            and not follower.is_damaged
            and follower.log_end >= high_watermark
            and follower.log_end >= self.epoch_start
        )

    def _is_slow(
        self,
        member: BrokerId,
        log_end: Offset,
        alive: Mapping[BrokerId, BrokerEpoch],
        lag_ms: int,
        now_ms: int,
    ) -> bool:
        """True if a member is not registered, or has lacked records for longer than `lag_ms`.

        An unregistered member leaves even if it has all records: otherwise the next record would have to wait until it
        is removed, in each partition.
        """
        follower = self.followers[member]
        if member not in alive:
            return True
        if follower.log_end >= log_end:
            follower.caught_up_ms = now_ms
            return False
        return now_ms - follower.caught_up_ms > lag_ms

    def recorded_as(
        self, members: frozenset[BrokerId], partition_epoch: int, *, has_eligible: bool = False
    ) -> None:
        """Adopt the recorded set of a newer partition epoch. Writes that require an earlier epoch now cannot succeed.

        Ignored if `partition_epoch` is not newer.
        """
        if partition_epoch > self.partition_epoch:
            self.recorded = members
            self.has_eligible = has_eligible
            self.partition_epoch = partition_epoch
            self._pending = None
            self._doubtful = frozenset()
            for member in members - self.followers.keys() - {self._me}:
                self.followers[member] = Follower(_NEVER)
            self._refresh()

    def refused(self, change: InSyncChange) -> None:
        """End a change that was not written and never will be."""
        if self._is_under_way(change):
            self._pending = None
            self._refresh()

    def unknown(self, change: InSyncChange) -> None:
        """End a change with an unknown outcome: it may have been written, or may be written later."""
        if self._is_under_way(change):
            self._doubtful |= {_Possible(change.members, change.keeps_eligible)}
            self._pending = None
            self._refresh()

    def _is_under_way(self, change: InSyncChange) -> bool:
        return (
            self._pending == _Possible(change.members, change.keeps_eligible)
            and self.partition_epoch == change.partition_epoch
        )
