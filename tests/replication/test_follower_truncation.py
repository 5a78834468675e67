"""Logs of a follower and its leader, as lists of the epochs that wrote each offset."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import LeaderEpoch, Offset
from penstock.replication.truncation import diverging_epoch, truncation_offset
from penstock.storage.leader_epochs import LeaderEpochs

ZERO = Offset(0)


class History:
    """Log of (epoch, value) at each offset, with the epochs that a broker remembers."""

    def __init__(self, written: list[tuple[int, int]] | None = None) -> None:
        self.written = written or []
        self.epochs = LeaderEpochs()
        for offset, (epoch, _) in enumerate(self.written):
            self.epochs.assign(LeaderEpoch(epoch), Offset(offset))
        self.high_watermark = 0

    @property
    def end(self) -> Offset:
        return Offset(len(self.written))

    def lead(self, epoch: int) -> None:
        self.epochs.assign(LeaderEpoch(epoch), self.end)

    def append(self, entry: tuple[int, int]) -> None:
        self.epochs.assign(LeaderEpoch(entry[0]), self.end)
        self.written.append(entry)

    def cut(self, end: int) -> None:
        del self.written[end:]
        self.epochs.truncate_from_end(Offset(end))
        self.high_watermark = min(self.high_watermark, end)


Rule = Callable[[History, LeaderEpoch, Offset], int | None]


def by_epoch(follower: History, epoch: LeaderEpoch, end: Offset) -> int | None:
    return truncation_offset(follower.epochs, ZERO, follower.end, epoch, end)


def step(leader: History, follower: History, count: int, rule: Rule = by_epoch) -> None:
    """Fetch at most `count` records."""
    last_epoch = follower.epochs.epoch_at(Offset(follower.end - 1))
    diverging = diverging_epoch(leader.epochs, leader.end, last_epoch, follower.end)
    if diverging is not None:
        end = rule(follower, *diverging)
        assert end is not None
        assert end < follower.end, "every round gets somewhere"
        follower.cut(end)
        return
    for entry in leader.written[follower.end : follower.end + count]:
        follower.append(entry)
    follower.high_watermark = max(follower.high_watermark, min(leader.high_watermark, follower.end))


def history(epochs: str) -> History:
    """Log from text: `"1123"` has two records of epoch 1, then one each of 2 and 3. The value tells equal
    records apart.
    """
    return History([(int(epoch), offset) for offset, epoch in enumerate(epochs)])


SHAPES = [
    # leader, follower, records that the follower keeps
    ("1122", "11", "11"),  # behind
    ("11", "1122", "11"),  # ahead, in an epoch that the leader never had
    ("1122", "1111", "11"),  # ahead in an old epoch
    ("1133", "1122", "11"),  # each has an epoch that the other lacks
    ("113", "11222", "11"),  # the same, but the follower's is longer
    ("1144", "112233", "11"),  # two lost epochs, in turn
    ("112244", "1133", "11"),  # the follower lacks the leader's middle epoch
    (
        "12335",
        "1224",
        "12",
    ),  # fast double failover (KIP-279): both have the epoch, with different ends
    ("2255", "1133", ""),  # nothing in common
    ("1111", "1111", "1111"),  # the same
    ("", "12", ""),  # an empty leader
]


@pytest.mark.parametrize(("leading", "following", "kept"), SHAPES)
def test_follower_keeps_records_in_common_with_its_leader(leading: str, following: str, kept: str) -> None:
    leader, follower = history(leading), history(following)
    leader.lead(9)
    for _ in range(10):
        last_epoch = follower.epochs.epoch_at(Offset(follower.end - 1))
        if diverging_epoch(leader.epochs, leader.end, last_epoch, follower.end) is None:
            break
        step(leader, follower, 0)
    assert "".join(str(epoch) for epoch, _ in follower.written) == kept
    for _ in range(10):
        step(leader, follower, 2)
    assert follower.written == leader.written


def test_impossible_leader_response_truncates_no_record() -> None:
    follower = history("1122")
    assert by_epoch(follower, LeaderEpoch(-1), Offset(-1)) is None
    assert by_epoch(follower, LeaderEpoch(7), Offset(2)) is None
    assert by_epoch(follower, LeaderEpoch(1), Offset(-1)) is None


def test_leader_epoch_without_records_does_not_hide_an_older_one() -> None:
    """Leader that was replaced before its first record, by one with more records of the epoch before."""
    follower, leader = history("11"), history("1111")
    follower.lead(2)
    leader.lead(3)
    step(leader, follower, 9)
    assert follower.written == leader.written
    assert follower.epochs.entries == history("1111").epochs.entries


def run_history(seed: int, rule: Rule) -> None:
    """Leaders change quickly, with uncommitted records; committed records stay, and the logs become the same."""
    random = Random(seed)
    logs = [History() for _ in range(3)]
    committed: list[tuple[int, int]] = []
    value = 0
    for epoch in range(1, 9):
        # All replicas are in sync, so every leader has all committed records.
        leader = random.choice([log for log in logs if log.written[: len(committed)] == committed])
        leader.lead(epoch)
        followers = [log for log in logs if log is not leader]
        ends = dict.fromkeys(followers, 0)
        for _ in range(random.randrange(12)):
            if random.random() < 0.5:
                value += 1
                leader.append((epoch, value))
                continue
            follower = random.choice(followers)
            step(leader, follower, random.randrange(3), rule)
            if follower.written == leader.written[: follower.end]:
                ends[follower] = follower.end
            reached = min(ends.values())
            if reached > len(committed):
                committed = leader.written[:reached]
                leader.high_watermark = reached
        for log in logs:
            assert log.written[: len(committed)] == committed
    leader = random.choice([log for log in logs if log.written[: len(committed)] == committed])
    leader.lead(9)
    for follower in logs:
        if follower is not leader:
            for _ in range(100):
                step(leader, follower, 3, rule)
            assert follower.written == leader.written
            assert follower.epochs.epoch_at(Offset(follower.end - 1)) == leader.epochs.epoch_at(
                Offset(leader.end - 1)
            )


@settings(max_examples=500, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_rapid_leader_changes_lose_no_record_and_leave_equal_logs(seed: int) -> None:
    run_history(seed, by_epoch)


def test_truncation_at_the_high_watermark_is_noticed() -> None:
    """The rule before KIP-101 loses committed records; a test that it passes would prove nothing."""

    def by_high_watermark(follower: History, epoch: LeaderEpoch, end: Offset) -> int:
        return follower.high_watermark

    def run_many() -> None:
        for seed in range(200):
            run_history(seed, by_high_watermark)

    with pytest.raises(AssertionError):
        run_many()
