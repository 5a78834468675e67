from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Durability
from penstock.model import NO_LEADER_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, Offset
from penstock.replication.in_sync import InSync
from penstock.replication.partition import ReplicatedPartition

ME, B, C = BrokerId(1), BrokerId(2), BrokerId(3)
START = Offset(0)


@dataclass
class Log:
    """Offsets of a log."""

    log_end_offset: Offset = START
    flushed_offset: Offset = START
    high_watermark: Offset = START
    committed_epoch: LeaderEpoch = NO_LEADER_EPOCH


class Replica:
    """Offsets of a log and the role of its replica."""

    def __init__(
        self, durability: Durability, log_end: int = 0, flushed: int = 0, high_watermark: int = 0
    ) -> None:
        self.log = Log(Offset(log_end), Offset(flushed), Offset(high_watermark))
        self.partition = ReplicatedPartition(durability, self.log)

    def append(self, log_end: int) -> bool:
        self.log.log_end_offset = Offset(log_end)
        return self.partition.advance()

    def flush(self, flushed: int) -> bool:
        self.log.flushed_offset = Offset(flushed)
        return self.partition.advance()

    def fetched(self, follower: BrokerId, offset: int) -> bool:
        return self.partition.on_follower_fetch(follower, BrokerEpoch(1), Offset(offset), Offset(0), 1)


def alone(durability: Durability) -> Replica:
    return leader_of(durability, ME)


def leader_of(durability: Durability, *members: BrokerId) -> Replica:
    machines = {ME: "a", B: "b", C: "c"}
    made = Replica(durability)
    made.partition.lead(LeaderEpoch(3), InSync(ME, members, frozenset(members), 0, Offset(0), machines, 0))
    return made


def test_durability_os_commits_without_a_flush() -> None:
    leader = alone(Durability.OS)
    assert leader.append(5)
    assert leader.log.high_watermark == 5
    assert not leader.partition.needs_flush


def test_default_durability_commits_flushed_records() -> None:
    leader = alone(Durability.AUTO)
    assert not leader.append(5)
    assert leader.log.high_watermark == 0
    assert leader.partition.needs_flush
    assert leader.flush(5)
    assert leader.log.high_watermark == 5
    assert not leader.partition.needs_flush


def test_flush_below_the_log_end_leaves_another_flush_needed() -> None:
    leader = alone(Durability.FSYNC)
    leader.append(5)
    leader.append(9)
    assert leader.flush(5)
    assert leader.log.high_watermark == 5
    assert leader.partition.needs_flush


def test_stricter_durability_does_not_lower_the_high_watermark() -> None:
    leader = alone(Durability.OS)
    leader.append(5)
    assert not leader.partition.set_durability(Durability.AUTO)
    assert leader.log.high_watermark == 5


def test_relaxed_durability_commits_unflushed_records() -> None:
    leader = alone(Durability.AUTO)
    leader.append(5)
    assert leader.partition.set_durability(Durability.OS)
    assert leader.log.high_watermark == 5


@given(st.lists(st.tuples(st.sampled_from(["append", "flush"]), st.integers(0, 5))))
def test_high_watermark_of_a_sole_replica_is_its_flushed_offset(steps: list[tuple[str, int]]) -> None:
    leader = alone(Durability.AUTO)
    log_end = flushed = seen = 0
    for step, amount in steps:
        if step == "append":
            log_end += amount
            moved = leader.append(log_end)
        else:
            flushed = min(log_end, flushed + amount)
            moved = leader.flush(flushed)
        assert moved == (leader.log.high_watermark > seen)
        seen = leader.log.high_watermark
        assert seen == flushed


def test_leader_commits_records_of_all_in_sync_replicas() -> None:
    leader = leader_of(Durability.AUTO, ME, B, C)
    assert not leader.append(5)
    assert not leader.partition.needs_flush, "three machines hold it"
    assert not leader.fetched(B, 5)
    assert leader.fetched(C, 3)
    assert leader.log.high_watermark == 3


def test_follower_high_watermark_stays_within_its_log() -> None:
    follower = Replica(Durability.AUTO, 5, 5, 2)
    follower.partition.follow(LeaderEpoch(4))
    assert follower.partition.on_leader_high_watermark(Offset(9))
    assert follower.log.high_watermark == 5
    assert not follower.partition.on_leader_high_watermark(Offset(3)), "a new leader may know of less"
    assert not follower.append(8)
    assert follower.log.high_watermark == 5


def test_stored_high_watermark_above_the_log_end_is_lowered() -> None:
    assert Replica(Durability.AUTO, 5, 5, 9).log.high_watermark == 5


def test_new_leader_continues_from_the_high_watermark_it_knew() -> None:
    leader = Replica(Durability.AUTO, 8, 8, 5)
    in_sync = InSync(ME, (ME, B), frozenset((ME, B)), 7, Offset(8), {ME: "a", B: "b"}, 0)
    assert not leader.partition.lead(LeaderEpoch(4), in_sync)
    assert leader.log.high_watermark == 5
    assert leader.fetched(B, 8)
    assert leader.log.high_watermark == 8
    leader.partition.follow(LeaderEpoch(5))
    assert not leader.append(9)
    assert leader.log.high_watermark == 8
