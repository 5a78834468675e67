"""In-sync set of a leader, with a store whose writes may be refused, late, or of unknown outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import Durability
from penstock.model import NO_LEADER_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, Offset
from penstock.replication.in_sync import InSync, InSyncChange
from penstock.replication.partition import ReplicatedPartition

A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)
ALL = frozenset((A, B, C))
START = Offset(0)
APART = {A: "a", B: "b", C: "c"}
LAG_MS = 100
ALIVE = dict.fromkeys((A, B, C), BrokerEpoch(1))


def in_sync(*recorded: BrokerId, epoch_start: int = 0, machines: dict[BrokerId, str] | None = None) -> InSync:
    return InSync(
        A, ALL, frozenset(recorded), 5, Offset(epoch_start), APART if machines is None else machines, 0
    )


def fetch(
    leader: InSync, replica: BrokerId, offset: int, *, flushed: int = 0, epoch: int = 1, **times: int
) -> bool:
    return leader.on_fetch(
        replica,
        BrokerEpoch(epoch),
        Offset(offset),
        Offset(flushed),
        Offset(times.get("log_end", 10)),
        times.get("now_ms", 1),
    )


def propose(
    leader: InSync,
    *,
    high_watermark: int,
    log_end: int = 10,
    flushed: int = 10,
    now_ms: int = 1,
    **options: Any,
) -> InSyncChange | None:
    return leader.propose(
        Offset(high_watermark),
        Offset(log_end),
        Offset(flushed),
        options.get("durability", Durability.AUTO),
        options.get("alive", ALIVE),
        LAG_MS,
        now_ms,
    )


def committed(leader: InSync, log_end: int = 10, flushed: int = 10) -> int:
    return leader.committed_end(Offset(log_end), Offset(flushed), Durability.AUTO)


def test_follower_joins_with_all_records_that_may_be_committed() -> None:
    leader = in_sync(A)
    fetch(leader, B, 6)
    assert propose(leader, high_watermark=7) is None
    fetch(leader, B, 7)
    change = propose(leader, high_watermark=7)
    assert change is not None
    assert change.members == {A, B}


def test_follower_joins_the_in_sync_set_only_after_the_start_of_the_leader_epoch() -> None:
    """The high watermark of a new leader may be lower than that of its predecessor (KAFKA-7128)."""
    leader = in_sync(A, epoch_start=9)
    fetch(leader, B, 8)
    assert propose(leader, high_watermark=5) is None
    fetch(leader, B, 9)
    assert propose(leader, high_watermark=5) is not None


def test_follower_with_a_damaged_log_joins_only_after_the_repair() -> None:
    leader = in_sync(A)
    leader.on_damage(B, BrokerEpoch(1), is_damaged=True)
    fetch(leader, B, 10)
    assert propose(leader, high_watermark=7) is None
    leader.on_damage(B, BrokerEpoch(0), is_damaged=False)  # old broker epoch
    assert propose(leader, high_watermark=7) is None
    leader.on_damage(B, BrokerEpoch(1), is_damaged=False)
    change = propose(leader, high_watermark=7)
    assert change is not None
    assert change.members == {A, B}


@pytest.mark.parametrize("durability", list(Durability))
def test_follower_joins_under_steady_load(durability: Durability) -> None:
    """Between any two fetches the leader appends, and commits alone as soon as it may."""
    leader = in_sync(A)
    high_watermark, log_end, joined = 0, 10, None
    for now_ms in range(20):
        high_watermark = max(
            high_watermark, leader.committed_end(Offset(log_end), Offset(log_end), durability)
        )
        fetch(leader, B, log_end - 5, flushed=log_end - 7, log_end=log_end, now_ms=now_ms)
        joined = joined or propose(
            leader,
            high_watermark=high_watermark,
            log_end=log_end,
            flushed=log_end,
            now_ms=now_ms,
            durability=durability,
        )
        log_end += 5
    assert joined is not None
    assert joined.members == {A, B}


def test_records_do_not_wait_for_a_close_follower_that_hangs_or_dies() -> None:
    for alive, now_ms in ((ALIVE, 1 + LAG_MS), ({A: BrokerEpoch(1)}, 2)):
        leader = in_sync(A)
        fetch(leader, B, 9, log_end=9)
        assert propose(leader, high_watermark=10) is None
        assert committed(leader, log_end=11, flushed=11) == 9, "the high watermark stays at 10"
        assert propose(leader, high_watermark=10, log_end=11, now_ms=now_ms, alive=alive) is None
        assert committed(leader, log_end=11, flushed=11) == 11


def test_records_do_not_wait_for_a_follower_that_is_far_behind() -> None:
    leader = in_sync(A)
    for now_ms in range(1, 50):
        fetch(leader, B, now_ms, log_end=1_000, now_ms=now_ms)
        assert propose(leader, high_watermark=1_000, log_end=1_000, flushed=1_000, now_ms=now_ms) is None
        assert committed(leader, log_end=1_000, flushed=1_000) == 1_000


def test_pending_larger_in_sync_set_holds_the_high_watermark_before_it_is_recorded() -> None:
    leader = in_sync(A)
    fetch(leader, B, 7)
    assert committed(leader) == 10
    change = propose(leader, high_watermark=7)
    assert change is not None
    assert committed(leader) == 7
    leader.refused(change)
    assert committed(leader) == 10


def test_pending_smaller_in_sync_set_applies_only_when_it_is_recorded() -> None:
    leader = in_sync(A, B, C)
    fetch(leader, B, 10, now_ms=500)
    change = propose(leader, high_watermark=0, now_ms=500)
    assert change is not None
    assert change.members == {A, B}
    assert committed(leader) == -1, "C may still be recorded"
    leader.recorded_as(frozenset((A, B)), 6)
    assert committed(leader) == 10


def test_unknown_write_outcome_keeps_both_in_sync_sets_in_force_until_the_next_write() -> None:
    leader = in_sync(A, B)
    fetch(leader, B, 4)
    change = propose(leader, high_watermark=4, now_ms=500)
    assert change is not None
    assert change.members == {A}
    leader.unknown(change)
    fetch(leader, B, 10, now_ms=501)
    assert committed(leader, flushed=8) == 8, "it may be alone"
    again = propose(leader, high_watermark=8, now_ms=502)
    assert again is not None, "the set as it should be is written again, to know"
    assert again.members == {A, B}
    leader.recorded_as(again.members, 6)
    assert committed(leader, flushed=8) == 10


def test_late_outcome_of_an_earlier_change_is_ignored() -> None:
    leader = in_sync(A, B)
    change = propose(leader, high_watermark=0, now_ms=500)
    assert change is not None
    leader.recorded_as(frozenset((A, B)), 6)  # written by another broker
    fetch(leader, B, 3)
    second = propose(leader, high_watermark=0, now_ms=500)
    assert second is not None
    leader.refused(change)
    assert propose(leader, high_watermark=0, now_ms=500) is None, "the second is still under way"


def test_fetch_of_an_old_broker_epoch_is_ignored() -> None:
    leader = in_sync(A, B)
    assert fetch(leader, B, 3, epoch=2)
    assert not fetch(leader, B, 9, epoch=1)
    assert committed(leader) == 3
    assert not fetch(leader, BrokerId(9), 9)


def test_reregistered_broker_joins_only_after_a_new_fetch() -> None:
    leader = in_sync(A)
    fetch(leader, B, 10)
    assert propose(leader, high_watermark=10, alive={**ALIVE, B: BrokerEpoch(2)}) is None
    fetch(leader, B, 10, epoch=2)
    assert propose(leader, high_watermark=10, alive={**ALIVE, B: BrokerEpoch(2)}) is not None


def test_slow_follower_leaves_after_the_lag_time_and_dead_one_at_once() -> None:
    leader = in_sync(A, B)
    fetch(leader, B, 10, now_ms=50)
    assert propose(leader, high_watermark=10, log_end=11, now_ms=150) is None
    assert propose(leader, high_watermark=10, log_end=11, now_ms=151) is not None
    leader = in_sync(A, B)
    fetch(leader, B, 10, now_ms=50)
    assert propose(leader, high_watermark=10, now_ms=51) is None
    assert propose(leader, high_watermark=10, now_ms=51, alive={A: BrokerEpoch(1)}) is not None


def test_follower_that_keeps_up_with_a_busy_leader_stays_in_sync() -> None:
    """A follower that is always one fetch behind is in sync."""
    leader = in_sync(A, B)
    for turn in range(50):
        fetch(leader, B, turn, log_end=turn + 1, now_ms=turn * 20)
        assert propose(leader, high_watermark=turn, log_end=turn + 1, now_ms=turn * 20) is None


def test_follower_that_always_lags_by_a_few_fetches_stays_in_sync() -> None:
    """Producers have more batches under way than a fetch returns, for longer than the lag time."""
    leader = in_sync(A, B)
    for turn in range(50):
        fetch(leader, B, turn, log_end=turn + 3, now_ms=turn * 20)
        assert propose(leader, high_watermark=turn, log_end=turn + 3, now_ms=turn * 20) is None


def test_follower_that_falls_further_behind_leaves_the_set() -> None:
    leader = in_sync(A, B)
    changes = []
    for turn in range(50):
        fetch(leader, B, turn, log_end=turn * 2, now_ms=turn * 20)
        changes.append(propose(leader, high_watermark=turn, log_end=turn * 2, now_ms=turn * 20))
    assert any(changes)


def test_leader_flushes_before_a_set_on_one_machine_is_written() -> None:
    leader = in_sync(A, B)
    change = propose(leader, high_watermark=0, flushed=4, now_ms=500)
    assert change is not None
    assert change.flush_to == 10
    leader.refused(change)
    change = propose(leader, high_watermark=0, flushed=4, now_ms=500, durability=Durability.OS)
    assert change is not None
    assert change.flush_to is None


def test_leaving_member_is_removed_at_once_and_does_not_rejoin() -> None:
    leader = in_sync(A, B, C)
    for follower in (B, C):
        fetch(leader, follower, 10)
    assert propose(leader, high_watermark=10) is None
    assert leader.set_leaving(frozenset({A, B}))
    change = propose(leader, high_watermark=10)
    assert change is not None
    assert change.members == {A, C}, "the leader itself is not its own to take out"
    leader.recorded_as(change.members, 6)
    fetch(leader, B, 10)
    assert propose(leader, high_watermark=10) is None
    assert not leader.set_leaving(frozenset())
    change = propose(leader, high_watermark=10)
    assert change is not None
    assert change.members == ALL


def test_leader_flushes_before_the_last_follower_leaves() -> None:
    leader = in_sync(A, B)
    fetch(leader, B, 10)
    leader.set_leaving(frozenset({B}))
    change = propose(leader, high_watermark=10, flushed=4)
    assert change is not None
    assert (change.members, change.flush_to) == (frozenset({A}), 10)


def test_replicas_on_one_machine_are_in_sync_by_their_flushed_offset() -> None:
    """One power loss takes all members, and the one that comes back last may be the only one left."""
    together = {A: "m", B: "m"}
    leader = in_sync(A, B, machines=together)
    fetch(leader, B, 10, flushed=6)
    assert committed(leader, flushed=8) == 6
    leader = in_sync(A, machines=together)
    fetch(leader, B, 10, flushed=6)
    assert propose(leader, high_watermark=7) is None
    fetch(leader, B, 10, flushed=7)
    assert propose(leader, high_watermark=7) is not None


def test_member_that_has_not_fetched_yet_stays_for_the_lag_time() -> None:
    leader = in_sync(A, B, machines={A: "m", B: "m"})
    assert propose(leader, high_watermark=0, now_ms=50) is None
    assert propose(leader, high_watermark=0, now_ms=500) is not None


@dataclass
class Offsets:
    """Offsets of one replica's log."""

    log_end_offset: Offset = START
    flushed_offset: Offset = START
    high_watermark: Offset = START
    committed_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass
class Store:
    """Recorded set. Writes reach it late, in any order, and their senders may not hear of the outcome."""

    members: frozenset[BrokerId]
    version: int = 0
    under_way: list[InSyncChange] = field(default_factory=list)

    def write(self, change: InSyncChange) -> bool:
        if change.partition_epoch != self.version:
            return False
        self.members, self.version = change.members, self.version + 1
        return True


class Model:
    def __init__(self, random: Random, durability: Durability) -> None:
        self.random = random
        self.now_ms = 0
        self.machines = {broker: random.choice("mn") for broker in ALL}
        self.logs = {broker: Offsets() for broker in ALL}
        start = random.randrange(4)
        for log in self.logs.values():
            log.log_end_offset = log.flushed_offset = Offset(start)
        self.store = Store(frozenset({A, *random.sample((B, C), random.randrange(3))}))
        self.logs[A].high_watermark = Offset(random.randrange(start + 1))
        self.leader = ReplicatedPartition(durability, self.logs[A])
        in_sync = InSync(A, ALL, self.store.members, 0, Offset(start), self.machines, 0)
        self.leader.lead(LeaderEpoch(1), in_sync)

    def append(self) -> None:
        log = self.logs[A]
        log.log_end_offset = Offset(log.log_end_offset + self.random.randrange(1, 4))
        self.leader.advance()

    def flush(self) -> None:
        broker = self.random.choice((A, B, C))
        self._flush(broker)

    def _flush(self, broker: BrokerId) -> None:
        log = self.logs[broker]
        log.flushed_offset = log.log_end_offset
        if broker == A:
            self.leader.advance()

    def fetch(self) -> None:
        replica = self.random.choice((B, C))
        log = self.logs[replica]
        self.leader.on_follower_fetch(
            replica, BrokerEpoch(1), log.log_end_offset, log.flushed_offset, self.now_ms
        )
        log.log_end_offset = Offset(self.random.randint(log.log_end_offset, self.logs[A].log_end_offset))

    def propose(self) -> None:
        change = self.leader.propose(ALIVE, LAG_MS, self.now_ms)
        if change is not None:
            if change.flush_to is not None:
                self._flush(A)
            self.store.under_way.append(change)

    def write(self) -> None:
        """Apply a write in the store; its sender may hear of it."""
        if not self.store.under_way:
            return
        change = self.store.under_way.pop(self.random.randrange(len(self.store.under_way)))
        happened = self.store.write(change)
        if self.random.random() < 0.5:
            if happened:
                self.leader.in_sync.recorded_as(change.members, self.store.version)
            else:
                self.leader.in_sync.refused(change)
            self.leader.on_in_sync()

    def lose_answer(self) -> None:
        for change in self.store.under_way:
            self.leader.in_sync.unknown(change)
        self.leader.on_in_sync()

    def leave(self) -> None:
        """Remove a restarting broker from the set; the leader hears of it later."""
        gone = self.random.choice((B, C))
        if len(self.store.members - {gone}) == 2:
            self.store.members -= {gone}
            self.store.version += 1

    def image(self) -> None:
        self.leader.in_sync.recorded_as(self.store.members, self.store.version)
        self.leader.on_in_sync()

    def wait(self) -> None:
        self.now_ms += self.random.randrange(2 * LAG_MS)

    def possible(self) -> list[frozenset[BrokerId]]:
        """Sets that are recorded, or that a write under way may record."""
        return [
            self.store.members,
            *(
                change.members
                for change in self.store.under_way
                if change.partition_epoch == self.store.version
            ),
        ]

    def check(self, durability: Durability) -> None:
        high_watermark = self.logs[A].high_watermark
        for members in self.possible():
            is_one_machine = len({self.machines[member] for member in members}) == 1
            for member in members:
                log = self.logs[member]
                assert log.log_end_offset >= high_watermark
                if durability is Durability.FSYNC or (durability is Durability.AUTO and is_one_machine):
                    assert log.flushed_offset >= high_watermark


STEPS = [
    Model.append,
    Model.append,
    Model.flush,
    Model.fetch,
    Model.fetch,
    Model.fetch,
    Model.propose,
    Model.propose,
    Model.write,
    Model.lose_answer,
    Model.image,
    Model.wait,
]


@pytest.mark.parametrize("durability", list(Durability))
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_committed_records_are_in_every_possible_in_sync_set(durability: Durability, seed: int) -> None:
    random = Random(seed)
    model = Model(random, durability)
    seen = 0
    for _ in range(120):
        random.choice(STEPS)(model)
        if durability is Durability.OS and random.random() < 0.05:
            model.leave()  # with other durabilities one machine may be left, which the leader would have to flush first
        model.check(durability)
        assert model.logs[A].high_watermark >= seen
        seen = model.logs[A].high_watermark
