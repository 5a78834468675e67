"""Priorities and order by key of `SharePartition` against a naive model, with random operations and settings."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NamedTuple

import pytest
from naive_share_partition import AVAILABLE, NaiveRecord
from test_share_partition_model import MEMBERS, Comparison

from penstock.queues.acquiring import Span
from penstock.queues.record_index import IndexedRecords
from penstock.queues.states import AcquireMode, ShareSettings

STEPS = 400
SEEDS = int(os.environ.get("SHARE_PARTITION_SEEDS", "60"))
KEYS = (None, 1, 2, 3)


class Content(NamedTuple):
    level: int
    key: int | None


class OrderComparison(Comparison):
    """The same run with an order of delivery: each acquisition must take the records that a plain search finds."""

    def __init__(self, seed: int) -> None:
        self.contents: dict[int, Content] = {}
        self.unstored: set[int] = set()
        """Records that were settled in this order, and whose settlement is not durable."""
        super().__init__(seed)

    def _draw_settings(self) -> ShareSettings:
        pick = self.random.choice
        return replace(
            super()._draw_settings(),
            max_ranges=10_000,
            has_priorities=pick((True, False)),
            lower_share=pick((0.0, 0.0, 0.1, 0.5)),
            is_ordered=pick((True, True, False)),
        )

    def step(self) -> None:
        order, before = self.real.order, self._unsettled()
        super().step()
        if order is None or self.real.order is not order:
            self.unstored.clear()
        else:
            settled = before - self._unsettled()
            self.unstored |= {each for each in settled if self.log_start <= each < order.end_offset}
        self._check_order()

    def _unsettled(self) -> set[int]:
        records = self.naive.records
        return {
            offset
            for offset in range(self.naive.start, self.log_end)
            if offset not in records or not records[offset].is_settled
        }

    # --- operations

    def append(self) -> None:
        end = self.log_end
        super().append()
        for offset in range(end, self.log_end):
            self.contents[offset] = Content(self.random.choice((0, 0, 0, 5, 9)), self.random.choice(KEYS))

    def index(self) -> None:
        """Index some of the records behind the end of the order; often it lags behind the log."""
        order = self.real.order
        if order is None:
            return
        order.skip_settled()
        end = min(self.log_end, order.end_offset + self.random.choice((0, 1, 5, 1000)))
        if end <= order.end_offset:
            return
        found = IndexedRecords(order.end_offset, end)
        for offset in range(order.end_offset, end):
            level, key = self.contents[offset]
            if level and order.wanted.levels:
                found.runs.append((offset, offset, level))
            if key is not None and order.wanted.keys:
                found.keys.append((offset, key))
        order.add(found)

    def acquire(self) -> None:
        order = self.real.order
        if order is None:
            super().acquire()
            return
        self.index()
        self.real.expire(self.now_ms)
        self.naive.expire(self.now_ms)
        below = min(self.random.choice((self.log_end, self.log_end - 3)), order.end_offset)
        span = self.real.next_span(below)
        free = self._deliverable(below)
        if not self.real.has_room or not free:
            assert span is None
            return
        assert span is not None
        level = self._check_choice(span, free, order.chosen_level)
        spans = [
            Span(max(each.first, span[0]), min(each.last, span[1]), each.is_hidden)
            for each in self.batches
            if each.last >= span[0] and each.first <= span[1]
        ]
        self._pass_over(span[0])
        limits = self.random.choice((1, 2, 10, 500)), self.random.choice((1, 5, 100))
        mode, member = self.random.choice(tuple(AcquireMode)), self.random.choice(MEMBERS)
        delivered = self.real.delivered[level]
        got = self.real.acquire(member, spans, *limits, mode, self.now_ms)
        expected = self.naive.acquire(member, spans, *limits, mode, self.now_ms)
        assert [tuple(each) for each in got] == expected
        count = sum(last - first + 1 for first, last, _ in expected) if order.wanted.levels else 0
        assert self.real.delivered[level] - delivered == count

    def _check_choice(self, span: tuple[int, int], free: dict[int, int], chosen: int) -> int:
        """The span must begin with the first record of the highest level, or of all lower ones in their share."""
        top = max(free.values())
        level = free[span[0]]
        assert chosen == level
        if level == top:
            assert span[0] == min(offset for offset, each in free.items() if each == top)
        else:
            assert self.settings.lower_share > 0
            assert span[0] == min(offset for offset, each in free.items() if each < top)
        assert all(free.get(offset) == level for offset in range(span[0], span[1] + 1))
        return level

    def _deliverable(self, below: int) -> dict[int, int]:
        """Levels of the records that may be delivered now."""
        found: dict[int, int] = {}
        busy: set[int] = set()
        first = min(self.unstored, default=self.naive.start)
        for offset in range(min(first, self.naive.start), below):
            record = self.naive.records.get(offset)
            is_done = offset < self.naive.start or (record is not None and record.is_settled)
            level, key = self.contents[offset]
            if is_done and offset not in self.unstored:
                continue
            is_free = not is_done and (record is None or record.state == AVAILABLE)
            if is_free and not (self.settings.is_ordered and key in busy):
                found[offset] = level if self.settings.has_priorities else 0
            if key is not None:
                busy.add(key)
        return found

    def _pass_over(self, offset: int) -> None:
        for passed in range(self.naive.end, offset):
            self.naive.records[passed] = NaiveRecord(AVAILABLE)
        self.naive.end = max(self.naive.end, offset)

    def change_settings(self) -> None:
        if self.random.random() < 0.2:
            self.settings = self.naive.settings = self._draw_settings()
            self.real.follow_settings(self.settings)

    def write(self) -> None:
        order = self.real.order
        settling = [] if order is None else order.take_settling()
        super().write()
        self.unstored.clear()
        if order is not None:
            order.free_keys(settling)

    def move_log_start(self) -> None:
        super().move_log_start()
        self.unstored = {each for each in self.unstored if each >= self.log_start}

    def _check_order(self) -> None:
        order = self.real.order
        assert (order is not None) == (self.settings.has_priorities or self.settings.is_ordered)
        if order is None or order.keys is None:
            return
        waiting: dict[int, list[int]] = {}
        for offset in sorted(self._unsettled() | self.unstored):
            key = self.contents[offset].key
            if key is not None and offset < order.end_offset:
                waiting.setdefault(key, []).append(offset)
        expected = sum(len(each) > 1 for each in waiting.values())
        is_exact = not order.keys._gone
        assert order.keys.blocked_keys == expected if is_exact else order.keys.blocked_keys >= expected


@pytest.mark.parametrize("seed", range(SEEDS))
def test_deliveries_have_the_order_of_a_plain_search(seed: int) -> None:
    comparison = OrderComparison(seed)
    for _ in range(STEPS):
        comparison.step()
