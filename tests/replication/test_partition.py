from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Durability
from penstock.model import LeaderEpoch, Offset
from penstock.replication.partition import Partition


def partition(durability: Durability, log_end: int = 0, flushed: int = 0) -> Partition:
    return Partition(LeaderEpoch(3), durability, Offset(log_end), Offset(flushed))


def test_page_cache_durability_commits_at_once() -> None:
    leader = partition(Durability.OS)
    assert leader.on_append(Offset(5))
    assert leader.high_watermark == 5
    assert not leader.needs_flush


def test_default_durability_commits_what_is_flushed() -> None:
    leader = partition(Durability.AUTO)
    assert not leader.on_append(Offset(5))
    assert leader.high_watermark == 0
    assert leader.needs_flush
    assert leader.on_flush(Offset(5))
    assert leader.high_watermark == 5
    assert not leader.needs_flush


def test_a_flush_of_less_than_was_appended_still_needs_another() -> None:
    leader = partition(Durability.FSYNC)
    leader.on_append(Offset(5))
    leader.on_append(Offset(9))
    assert leader.on_flush(Offset(5))
    assert leader.high_watermark == 5
    assert leader.needs_flush


def test_going_back_to_default_durability_takes_nothing_back() -> None:
    leader = partition(Durability.OS)
    leader.on_append(Offset(5))
    assert not leader.set_durability(Durability.AUTO)
    assert leader.high_watermark == 5


def test_relaxing_durability_shows_what_waited() -> None:
    leader = partition(Durability.AUTO)
    leader.on_append(Offset(5))
    assert leader.set_durability(Durability.OS)
    assert leader.high_watermark == 5


@given(st.lists(st.tuples(st.sampled_from(["append", "flush"]), st.integers(0, 5))))
def test_high_watermark_never_goes_back_nor_passes_what_is_flushed(steps: list[tuple[str, int]]) -> None:
    leader = partition(Durability.AUTO)
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
