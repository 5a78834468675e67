from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Durability
from penstock.model import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from penstock.replication.in_sync import InSync
from penstock.replication.partition import Partition

ME, B, C = BrokerId(1), BrokerId(2), BrokerId(3)


def alone(durability: Durability) -> Partition:
    return leader_of(durability, ME)


def leader_of(
    durability: Durability, *members: BrokerId, machines: dict[BrokerId, str] | None = None
) -> Partition:
    machines = {ME: "a", B: "b", C: "c"} if machines is None else machines
    made = Partition(durability, Offset(0), Offset(0), Offset(0))
    made.lead(LeaderEpoch(3), InSync(ME, members, frozenset(members), 0, Offset(0), machines, 0))
    return made


def test_page_cache_durability_commits_at_once() -> None:
    leader = alone(Durability.OS)
    assert leader.on_append(Offset(5))
    assert leader.high_watermark == 5
    assert not leader.needs_flush


def test_default_durability_commits_what_is_flushed() -> None:
    leader = alone(Durability.AUTO)
    assert not leader.on_append(Offset(5))
    assert leader.high_watermark == 0
    assert leader.needs_flush
    assert leader.on_flush(Offset(5))
    assert leader.high_watermark == 5
    assert not leader.needs_flush


def test_a_flush_of_less_than_was_appended_still_needs_another() -> None:
    leader = alone(Durability.FSYNC)
    leader.on_append(Offset(5))
    leader.on_append(Offset(9))
    assert leader.on_flush(Offset(5))
    assert leader.high_watermark == 5
    assert leader.needs_flush


def test_going_back_to_default_durability_takes_nothing_back() -> None:
    leader = alone(Durability.OS)
    leader.on_append(Offset(5))
    assert not leader.set_durability(Durability.AUTO)
    assert leader.high_watermark == 5


def test_relaxing_durability_shows_what_waited() -> None:
    leader = alone(Durability.AUTO)
    leader.on_append(Offset(5))
    assert leader.set_durability(Durability.OS)
    assert leader.high_watermark == 5


@given(st.lists(st.tuples(st.sampled_from(["append", "flush"]), st.integers(0, 5))))
def test_high_watermark_never_goes_back_nor_passes_what_is_flushed(steps: list[tuple[str, int]]) -> None:
    leader = alone(Durability.AUTO)
    log_end = flushed = seen = 0
    for step, amount in steps:
        if step == "append":
            log_end += amount
            moved = leader.on_append(Offset(log_end))
        else:
            flushed = min(log_end, flushed + amount)
            moved = leader.on_flush(Offset(flushed))
        assert moved == (leader.high_watermark > seen)
        seen = leader.high_watermark
        assert seen == flushed


def test_a_leader_of_others_commits_what_all_of_them_have() -> None:
    leader = leader_of(Durability.AUTO, ME, B, C)
    assert not leader.on_append(Offset(5))
    assert not leader.needs_flush, "three machines hold it"
    assert not leader.on_follower_fetch(B, BrokerEpoch(1), Offset(5), Offset(0), 1)
    assert leader.on_follower_fetch(C, BrokerEpoch(1), Offset(3), Offset(0), 1)
    assert leader.high_watermark == 3


def test_a_follower_hears_of_no_more_than_it_has() -> None:
    follower = Partition(Durability.AUTO, Offset(5), Offset(5), Offset(2))
    follower.follow(LeaderEpoch(4))
    assert follower.on_heard(Offset(9))
    assert follower.high_watermark == 5
    assert not follower.on_heard(Offset(3)), "a new leader may know of less; what was committed stays so"
    assert not follower.on_append(Offset(8))
    follower.on_truncate(Offset(4), Offset(4), Offset(4))
    assert follower.high_watermark == 4


def test_a_new_leader_goes_on_from_what_it_knew() -> None:
    leader = Partition(Durability.AUTO, Offset(8), Offset(8), Offset(5))
    in_sync = InSync(ME, (ME, B), frozenset((ME, B)), 7, Offset(8), {ME: "a", B: "b"}, 0)
    assert not leader.lead(LeaderEpoch(4), in_sync)
    assert leader.high_watermark == 5
    assert leader.on_follower_fetch(B, BrokerEpoch(1), Offset(8), Offset(0), 1)
    assert leader.high_watermark == 8
    leader.follow(LeaderEpoch(5))
    assert not leader.on_append(Offset(9))
    assert leader.high_watermark == 8
