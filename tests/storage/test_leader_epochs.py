"""The history of leader epochs, and where a follower's log diverges from it."""

from __future__ import annotations

import pytest

from penstock.model import LeaderEpoch, Offset
from penstock.storage.leader_epochs import LeaderEpochs


def make(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in entries:
        epochs.assign(LeaderEpoch(epoch), Offset(start))
    return epochs


def entries(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in epochs.entries]


def test_leader_epoch_cache_accepts_only_newer_epochs() -> None:
    epochs = make((1, 0), (3, 10))
    epochs.assign(LeaderEpoch(3), Offset(20))
    epochs.assign(LeaderEpoch(2), Offset(20))
    assert entries(epochs) == [(1, 0), (3, 10)]
    assert epochs.latest == 3


def test_leader_epoch_without_records_is_replaced_by_the_next() -> None:
    assert entries(make((1, 0), (2, 10), (3, 10))) == [(1, 0), (3, 10)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (0, (0, 5)),  # before the first known epoch: ends where that starts
        (1, (1, 10)),
        (2, (1, 10)),  # the largest epoch not above
        (3, (3, 20)),
        (7, (7, 30)),  # the present one ends at the end of the log
        (8, (-1, -1)),  # not known yet
        (-1, (-1, -1)),
    ],
)
def test_end_offset_of_a_leader_epoch_is_the_start_of_the_next(asked: int, answer: tuple[int, int]) -> None:
    epochs = make((1, 5), (3, 10), (7, 20))
    assert epochs.end_of(LeaderEpoch(asked), Offset(30)) == answer


def test_empty_log_has_no_leader_epoch() -> None:
    assert LeaderEpochs().end_of(LeaderEpoch(0), Offset(0)) == (-1, -1)


def test_leader_epoch_is_found_by_offset() -> None:
    epochs = make((1, 5), (3, 10))
    assert [epochs.epoch_at(Offset(offset)) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]


def test_truncation_drops_leader_epochs_that_start_at_or_above_it() -> None:
    epochs = make((1, 0), (2, 10), (3, 20))
    epochs.truncate_from_end(Offset(20))
    assert entries(epochs) == [(1, 0), (2, 10)]


def test_advancing_the_log_start_keeps_the_leader_epoch_of_its_offset() -> None:
    epochs = make((1, 0), (2, 10), (3, 20))
    epochs.truncate_from_start(Offset(15))
    assert entries(epochs) == [(2, 15), (3, 20)]
    epochs.truncate_from_start(Offset(20))
    assert entries(epochs) == [(3, 20)]


def test_earlier_leader_epochs_are_added_before_known_ones() -> None:
    epochs = make((3, 10))
    epochs.add_earlier(LeaderEpoch(3), Offset(8))
    epochs.add_earlier(LeaderEpoch(1), Offset(5))
    epochs.add_earlier(LeaderEpoch(2), Offset(0))  # newer than the first known one
    epochs.add_earlier(LeaderEpoch(0), Offset(20))  # not before the first known one
    assert entries(epochs) == [(1, 5), (3, 8)]
