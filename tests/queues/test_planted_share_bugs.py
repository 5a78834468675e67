"""Bugs that are planted in share-partitions one by one: the comparison with a dict of offsets notices each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from test_share_partition_model import STEPS, Comparison
from test_stored_state import compare_updates

from penstock.queues import acknowledgement_checks, ranges, record_states, stored_state
from penstock.queues.deadlines import RangeDeadlines
from penstock.queues.free_ranges import FreeRanges
from penstock.queues.ranges import Range, Ranges
from penstock.queues.share_partition import SharePartition
from penstock.queues.states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    NO_REASON,
    WAITING,
    Acknowledgement,
    StateBatch,
)
from penstock.queues.stored_state import StoredState

SEEDS = 12
Patch = pytest.MonkeyPatch
BUGS: dict[str, Callable[[Patch], None]] = {}


def bug(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    BUGS[plant.__name__] = plant
    return plant


@bug
def acquired_records_are_stored_as_accepted(patch: Patch) -> None:
    def describe(kept: Ranges, first: int, last: int, batches: list[StateBatch]) -> None:
        for place in range(kept.place(first), len(kept)):
            found = kept.all[place]
            if found.first <= last:
                state = ACKNOWLEDGED if found.state == ACQUIRED else found.state
                ends = max(first, found.first), min(last, found.last)
                batches.append(StateBatch(*ends, state, found.delivery_count))

    patch.setattr(record_states, "describe", describe)


@bug
def lock_survives_its_acknowledgement(patch: Patch) -> None:
    real = SharePartition._settle

    def settle(self: SharePartition, first: int, last: int, state: int) -> None:
        real(self, first, last, state)
        for each in self._ranges.all:
            if each.first <= first <= each.last and each.is_settled:
                each.state, each.deadline_ms = AVAILABLE, 0

    patch.setattr(SharePartition, "_settle", settle)


@bug
def lock_is_renewed_by_another_member(patch: Patch) -> None:
    def check(self: SharePartition, member: str, acknowledgement: Acknowledgement) -> None:
        """Accept records of any member."""

    patch.setattr(SharePartition, "_check_held", check)


@bug
def start_offset_moves_beyond_the_settled_records(patch: Patch) -> None:
    real = SharePartition._drop_settled_front

    def drop(self: SharePartition) -> None:
        before = self.start_offset
        real(self)
        if self.start_offset > before and self._ranges.all and len(self._ranges.all[0]) > 1:
            self.start_offset += 1

    patch.setattr(SharePartition, "_drop_settled_front", drop)


@bug
def gap_of_the_stored_state_swallows_records(patch: Patch) -> None:
    real = SharePartition._extend

    def extend(self: SharePartition, added: Range) -> None:
        if added.state == AVAILABLE and added.delivery_count == 0 and not self._held:
            added.state = ARCHIVED
        real(self, added)

    patch.setattr(SharePartition, "_extend", extend)


@bug
def session_end_releases_records_of_other_members(patch: Patch) -> None:
    real = SharePartition.release_member

    def release(self: SharePartition, member: str, now_ms: int, *, is_lost: bool = False) -> int:
        return sum(real(self, each, now_ms, is_lost=is_lost) for each in list(self._held))

    patch.setattr(SharePartition, "release_member", release)


@bug
def timeout_does_not_raise_the_count(patch: Patch) -> None:
    real = SharePartition._release

    def release(self: SharePartition, held: Range, now_ms: int, delay_ms: int | None = None) -> None:
        held.delivery_count = max(1, held.delivery_count - 1)
        real(self, held, now_ms, delay_ms)

    patch.setattr(SharePartition, "_release", release)


@bug
def refused_acknowledgement_changes_half_of_its_records(patch: Patch) -> None:
    real = SharePartition._check_held

    def check(self: SharePartition, member: str, asked: Acknowledgement) -> None:
        real(self, member, asked)
        if asked.last_offset >= self.start_offset:
            for first, last, kind in acknowledgement_checks.runs(asked, self.start_offset):
                if kind != 4 and self._ranges.all[self._ranges.place(first)].state == ACQUIRED:
                    self._carry_out(first, last, kind, 0, None)

    patch.setattr(SharePartition, "_check_held", check)


@bug
def failed_write_loses_its_changes(patch: Patch) -> None:
    patch.setattr(SharePartition, "restore_changes", lambda self, update: None)


@bug
def locks_are_not_limited(patch: Patch) -> None:
    patch.setattr(SharePartition, "has_room", True)


@bug
def released_records_are_forgotten(patch: Patch) -> None:
    patch.setattr(FreeRanges, "push", lambda self, kept, found: None)


@bug
def back_off_is_lost_in_an_update(patch: Patch) -> None:
    def describe(kept: Ranges, first: int, last: int, batches: list[StateBatch]) -> None:
        added: list[StateBatch] = []
        ranges.describe(kept, first, last, added)
        batches += [each._replace(ready_ms=0) for each in added]

    patch.setattr(record_states, "describe", describe)


@bug
def delayed_release_is_early(patch: Patch) -> None:
    real = SharePartition.expire
    patch.setattr(SharePartition, "expire", lambda self, now_ms: real(self, now_ms + 1))


@bug
def delayed_release_is_forgotten(patch: Patch) -> None:
    real = RangeDeadlines.push

    def push(self: RangeDeadlines, kept: Ranges, found: Range) -> None:
        if found.state != WAITING:
            real(self, kept, found)

    patch.setattr(RangeDeadlines, "push", push)


@bug
def dead_letter_is_written_after_the_record_was_settled(patch: Patch) -> None:
    real = SharePartition.begin_letters

    def begin(self: SharePartition, producer_id: int, sequence: int, max_records: int) -> Any:
        letters = real(self, producer_id, sequence, max_records)
        if letters is not None:
            for first, last in letters.ranges:
                self._settle(first, last, ARCHIVED)
        return letters

    patch.setattr(SharePartition, "begin_letters", begin)


@bug
def dead_letters_in_progress_are_not_stored(patch: Patch) -> None:
    real = SharePartition.take_update
    patch.setattr(SharePartition, "take_update", lambda self: real(self)._replace(letters=None))


@bug
def dead_letters_are_written_with_another_sequence_after_a_crash(patch: Patch) -> None:
    real = SharePartition._load

    def load(self: SharePartition, batches: Any) -> None:
        real(self, batches)
        if self.letters is not None and self.letters.ranges:
            self.letters = self.letters._replace(sequence=self.letters.sequence + 1)

    patch.setattr(SharePartition, "_load", load)


@bug
def reason_is_lost_in_an_update(patch: Patch) -> None:
    def described(kept: Ranges, first: int, last: int, batches: list[StateBatch]) -> None:
        added: list[StateBatch] = []
        ranges.describe(kept, first, last, added)
        batches += [each._replace(reason=NO_REASON) for each in added]

    patch.setattr(record_states, "describe", described)


def compare_all() -> None:
    for seed in range(SEEDS):
        comparison = Comparison(seed)
        for _ in range(STEPS):
            comparison.step()


def compare_all_updates() -> None:
    for seed in range(SEEDS):
        compare_updates(seed)


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_of_a_share_partition_is_noticed(name: str, monkeypatch: Patch) -> None:
    BUGS[name](monkeypatch)
    with pytest.raises((AssertionError, IndexError, KeyError, pytest.fail.Exception)):
        compare_all()


def test_update_lost_between_two_snapshots_is_noticed(monkeypatch: Patch) -> None:
    real = StoredState.snapshot

    def snapshot(self: StoredState, now_ms: int) -> Any:
        return real(self, now_ms)._replace(batches=self.ranges.all()[:-1])

    monkeypatch.setattr(StoredState, "snapshot", snapshot)
    with pytest.raises(AssertionError):
        compare_all_updates()


def test_merge_of_settled_and_available_ranges_is_noticed(monkeypatch: Patch) -> None:
    def merged(parts: Sequence[StateBatch]) -> list[StateBatch]:
        first, last = parts[0].first_offset, parts[-1].last_offset
        return [StateBatch(first, last, parts[0].state, parts[0].delivery_count)]

    monkeypatch.setattr(stored_state, "_merged", merged)
    with pytest.raises(AssertionError):
        compare_all_updates()
