"""Who is in sync: the followers as their leader sees them, and how the recorded in-sync set may change.

Pure. The set that counts is the one recorded in the store. While a change of it is on its way, or came to an unknown
end, nobody knows which is recorded, so all of them count: a record is committed only when every member of each has
it, and where one of them is a single machine only when its members have fsynced it, for one loss of power takes all
of them and any may be the one that is asked afterwards. A follower joins only with everything that may be committed,
and everything from before the leader's epoch. Every `now_ms` is monotonic time: a wall clock that is set forward would
remove healthy followers, and one that is set back would keep hung ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.config import Durability
from penstock.model import BrokerEpoch, BrokerId, Offset

_UNKNOWN = Offset(-1)
_NO_EPOCH = BrokerEpoch(-1)
_NEVER = -(2**62)
"""Earlier than any time of the monotonic clock."""


@dataclass(slots=True)
class Follower:
    """What the leader knows of one follower in its epoch."""

    caught_up_ms: int
    """When it last had everything the leader had, by the leader's monotonic clock."""
    log_end: Offset = _UNKNOWN
    """It has everything below; unknown until it fetches in this epoch."""
    flushed: Offset = _UNKNOWN
    mark: Offset = _UNKNOWN
    """What the leader had at `mark_ms`; moves on when the follower has come so far."""
    mark_ms: int = 0
    log_start: Offset = _UNKNOWN
    """It serves nothing below."""
    broker_epoch: BrokerEpoch = _NO_EPOCH
    """The life of the broker that said so: after a crash it may have less."""
    is_damaged: bool = False
    """Whether its log has damage below `log_end`: then it does not have everything there."""


@dataclass(frozen=True, slots=True)
class InSyncChange:
    """An in-sync set to be recorded on condition of `partition_epoch`."""

    members: frozenset[BrokerId]
    partition_epoch: int
    flush_to: Offset | None
    """What the leader must have fsynced before it is written: the set will be one machine."""
    joining: Mapping[BrokerId, BrokerEpoch] = field(default_factory=dict)
    """Those the set lets in, with the life of each in which it had everything."""
    keeps_eligible: bool = False
    """Whether replicas that leave are recorded as eligible leaders: the set is below min.insync.replicas. Otherwise the
    record names no eligible leaders any more."""
    committed: Offset = _UNKNOWN
    """The high watermark; it does not move while eligible leaders are recorded."""
    log_end: Offset = _UNKNOWN
    """The end of the leader's log."""


@dataclass(frozen=True, slots=True)
class _Possible:
    """An in-sync set that may be the recorded one."""

    members: frozenset[BrokerId]
    has_eligible: bool
    """Whether eligible leaders are recorded with it."""


@dataclass(frozen=True, slots=True)
class _Condition:
    """What one of the sets that may be recorded asks for."""

    followers: tuple[Follower, ...]
    is_one_machine: bool
    is_held: bool = False
    """Whether nothing is committed while this set may be recorded."""

    def needs_flush(self, durability: Durability) -> bool:
        return durability is Durability.FSYNC or (self.is_one_machine and durability is Durability.AUTO)


class InSync:
    """The leader's part; made anew for each leader epoch. `alive` are the registered brokers with their epochs."""

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
        """Whether the recorded state names eligible leaders outside of the set."""
        self.partition_epoch = partition_epoch
        self._me = me
        self.epoch_start = epoch_start
        self._min_in_sync = min_in_sync
        self._pending: _Possible | None = None
        self._doubtful: frozenset[_Possible] = frozenset()
        """Changes on condition of the present partition epoch that came to an unknown end."""
        self._is_alone = False
        """Whether no follower was in step when that was last looked at."""
        self._machines = machines
        self._leaving: frozenset[BrokerId] = frozenset()
        self.followers: dict[BrokerId, Follower] = {}
        self._conditions: tuple[_Condition, ...] = ()
        self.set_replicas(replicas, now_ms)

    @property
    def is_alone(self) -> bool:
        """Whether nothing but the leader's own log decides what is committed."""
        return (
            len(self._conditions) == 1
            and not self._conditions[0].followers
            and not self._conditions[0].is_held
        )

    @property
    def must_be_written(self) -> bool:
        """Whether nothing more is committed until another state is recorded, and that can be now: a member of the set
        is not registered, or eligible leaders are named that the set does not need any more."""
        has_dead = any(member not in self._machines for member in self.recorded if member != self._me)
        return has_dead or (self.has_eligible and self._is_enough(self.recorded))

    def set_min_in_sync(self, min_in_sync: int) -> None:
        """Sets of fewer members, or of fewer than all replicas where these are fewer, keep eligible leaders."""
        self._min_in_sync = min_in_sync

    def _is_enough(self, members: frozenset[BrokerId]) -> bool:
        return len(members) >= min(self._min_in_sync, len(self.followers) + 1)

    def set_replicas(self, replicas: Iterable[BrokerId], now_ms: int) -> None:
        wanted = (set(replicas) | self.recorded) - {self._me}
        self.followers = {
            replica: self.followers.get(replica) or Follower(now_ms) for replica in sorted(wanted)
        }
        self._refresh()

    def set_machines(self, machines: Mapping[BrokerId, str]) -> None:
        """Which machine each living broker runs on; one that is not known counts as the leader's own."""
        self._machines = machines
        self._refresh()

    def set_leaving(self, leaving: frozenset[BrokerId]) -> bool:
        """Who is to be taken out of the set, and not let in; true where somebody has to go now."""
        self._leaving = leaving - {self._me}
        return bool(self.recorded & self._leaving)

    def _refresh(self) -> None:
        possible = {_Possible(self.recorded, self.has_eligible), *self._doubtful}
        if self._pending is not None:
            possible.add(self._pending)
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

    # --- what is committed

    def committed_end(self, log_end: Offset, flushed: Offset, durability: Durability) -> Offset:
        """Everything below is committed, by what the leader and its followers have; -1 where nothing more may be."""
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
        """Below it neither the leader nor any member of the recorded set serves anything."""
        members = (self.followers[member] for member in self.recorded if member != self._me)
        return min((member.log_start for member in members), default=log_start)

    def needs_flush(self, durability: Durability) -> bool:
        """Whether what the leader has not fsynced cannot be committed."""
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
        """A follower asks for what comes from `offset` on: it has everything below. False if it is not to be counted:
        no replica, or a former life of it."""
        follower = self.followers.get(replica)
        if follower is None or broker_epoch < follower.broker_epoch:
            return False
        if offset >= leader_log_end:
            follower.caught_up_ms = now_ms
        elif offset >= follower.mark >= 0:
            # It has what the leader had then. The mark waits for it: one that is always a few fetches behind, as when
            # producers have more under way than a fetch brings, would never come to what was there one fetch ago.
            follower.caught_up_ms = max(follower.caught_up_ms, follower.mark_ms)
        follower.broker_epoch = broker_epoch
        follower.log_end = offset
        follower.flushed = min(flushed, offset)
        follower.log_start = log_start
        if offset >= follower.mark:
            follower.mark, follower.mark_ms = leader_log_end, now_ms
        return True

    def on_damage(self, replica: BrokerId, broker_epoch: BrokerEpoch, *, is_damaged: bool) -> None:
        """A follower says whether its log has damage; comes before `on_fetch`."""
        follower = self.followers.get(replica)
        if follower is not None and broker_epoch >= follower.broker_epoch:
            follower.is_damaged = is_damaged

    @property
    def is_in_doubt(self) -> bool:
        """Whether no follower is in step, and the store did not answer either: another may lead by now."""
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
        """The set as it should be, where that may not be the recorded one; begins the change.

        Call `recorded_as`, `refused` or `unknown` when it has come to its end; until then there is no other.
        """
        if self._pending is not None:
            return None
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
                return None  # it has yet to say what it has; if it does not it is slow, in time
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

    def may_join(self, replica: BrokerId, high_watermark: Offset) -> bool:
        """Whether one that is not in sync has everything that may be committed."""
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
        """Whether it has lacked something for too long, or is dead.

        Also where it lacks nothing yet: the next record would wait for it, and records of many partitions one after
        the other, where a client sends few at a time.
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
        """The store has this set now; nothing on condition of an earlier partition epoch can happen any more."""
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
        """The change is known not to have happened, and never will."""
        if self._is_under_way(change):
            self._pending = None
            self._refresh()

    def unknown(self, change: InSyncChange) -> None:
        """The change may have happened, or may happen yet."""
        if self._is_under_way(change):
            self._doubtful |= {_Possible(change.members, change.keeps_eligible)}
            self._pending = None
            self._refresh()

    def _is_under_way(self, change: InSyncChange) -> bool:
        return (
            self._pending == _Possible(change.members, change.keeps_eligible)
            and self.partition_epoch == change.partition_epoch
        )
