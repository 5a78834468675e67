"""Bugs that are planted in the order of delivery one by one: the comparison with a plain search notices each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_delivery_order_model import STEPS, OrderComparison

from penstock.queues.delivery_order import DeliveryOrder
from penstock.queues.key_order import BlockedKeys
from penstock.queues.priority_level import Find, PriorityLevel
from penstock.queues.ranges import Range
from penstock.queues.record_index import IndexedRecords
from penstock.queues.share_partition import SharePartition

SEEDS = 12
Patch = pytest.MonkeyPatch
BUGS: dict[str, Callable[[Patch], None]] = {}


def bug(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    BUGS[plant.__name__] = plant
    return plant


@bug
def key_is_freed_by_lock_expiry_while_its_record_is_being_settled(patch: Patch) -> None:
    real = SharePartition.expire

    def expire(self: SharePartition, now_ms: int) -> int:
        if self.order is not None:
            self.order.free_keys(self.order.take_settling())
        return real(self, now_ms)

    patch.setattr(SharePartition, "expire", expire)


@bug
def released_record_frees_its_key(patch: Patch) -> None:
    real = SharePartition._release

    def release(self: SharePartition, held: Range, now_ms: int, delay_ms: int | None = None) -> None:
        offsets = list(range(held.first, held.last + 1))
        real(self, held, now_ms, delay_ms)
        if self.order is not None:
            self.order.free_keys(offsets)

    patch.setattr(SharePartition, "_release", release)


@bug
def key_is_freed_before_the_settlement_is_durable(patch: Patch) -> None:
    def on_settled(self: DeliveryOrder, first: int, last: int) -> None:
        if self.keys is not None:
            self.free_keys(self.keys.within(first, last))

    patch.setattr(DeliveryOrder, "on_settled", on_settled)


@bug
def records_are_skipped_while_the_index_lags(patch: Patch) -> None:
    real = DeliveryOrder.skip_settled

    def skip(self: DeliveryOrder) -> None:
        real(self)
        self.end_offset = max(self.end_offset, self._states.end_offset)

    patch.setattr(DeliveryOrder, "skip_settled", skip)


@bug
def released_record_is_not_visited_again(patch: Patch) -> None:
    patch.setattr(DeliveryOrder, "on_available", lambda self, first, last: None)


@bug
def position_passes_records_that_are_not_taken(patch: Patch) -> None:
    real = PriorityLevel.first

    def first(self: PriorityLevel, find: Find) -> tuple[int, int] | None:
        found = real(self, find)
        if found is not None:
            self._position = max(self._position, found[1] + 1)
        return found

    patch.setattr(PriorityLevel, "first", first)


@bug
def settled_record_in_the_middle_of_a_key_frees_the_next_one(patch: Patch) -> None:
    def free(self: BlockedKeys, offset: int) -> int | None:
        self._keys.pop(offset, None)
        following = self._nexts.pop(offset, None)
        if following is not None:
            self.blocked.discard(following)
        return following

    patch.setattr(BlockedKeys, "free", free)


@bug
def records_below_the_log_start_block_their_keys(patch: Patch) -> None:
    patch.setattr(DeliveryOrder, "on_log_start", lambda self, offset: self.skip_settled())


@bug
def records_between_runs_of_a_level_are_forgotten(patch: Patch) -> None:
    real = DeliveryOrder.add

    def add(self: DeliveryOrder, records: IndexedRecords) -> None:
        if records.runs:
            first = records.runs[0][0]
            self.end_offset = records.first_offset = first
        real(self, records)

    patch.setattr(DeliveryOrder, "add", add)


@bug
def lowest_level_is_first(patch: Patch) -> None:
    real = DeliveryOrder.next_span

    def next_span(
        self: DeliveryOrder, below: int, lower_share: float, *, allows_new: bool
    ) -> tuple[int, int] | None:
        self._levels.reverse()
        try:
            found = real(self, below, lower_share, allows_new=allows_new)
        finally:
            self._levels.reverse()
        self.chosen_level = len(self._levels) - 1 - self.chosen_level
        return found

    patch.setattr(DeliveryOrder, "next_span", next_span)


def compare_all() -> None:
    for seed in range(SEEDS):
        comparison = OrderComparison(seed)
        for _ in range(STEPS):
            comparison.step()


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_of_the_delivery_order_is_noticed(name: str, monkeypatch: Patch) -> None:
    BUGS[name](monkeypatch)
    with pytest.raises((AssertionError, IndexError, KeyError)):
        compare_all()
