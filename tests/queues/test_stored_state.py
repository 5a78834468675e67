"""`StoredState` against a dict of offsets: updates replace what they overlap, the start offset never decreases."""

from __future__ import annotations

from random import Random

import pytest

from penstock.queues.records import SnapshotValue, UpdateValue
from penstock.queues.states import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from penstock.queues.stored_state import StoredState

Offsets = dict[int, tuple[bool, int, int]]


def expanded(state: StoredState) -> Offsets:
    offsets: Offsets = {}
    for first, last, kind, count, ready_ms, _, _ in state.ranges.all():
        for offset in range(first, last + 1):
            assert offset not in offsets
            is_settled = kind >= ACKNOWLEDGED
            offsets[offset] = (True, 0, 0) if is_settled else (False, count, ready_ms)
    return offsets


@pytest.mark.parametrize("seed", range(30))
def test_state_updates_equal_a_dict_of_offsets(seed: int) -> None:
    compare_updates(seed)


def compare_updates(seed: int) -> None:
    random = Random(seed)
    state = StoredState(SnapshotValue(0, 0, 0, 0, 0, 0, 0, ()), 0)
    expected: Offsets = {}
    start = 0
    for _ in range(200):
        batches = []
        offset = start
        for _ in range(random.randrange(4)):
            first = offset + random.randrange(12)
            last = first + random.randrange(8)
            kind = random.choice((AVAILABLE, ACKNOWLEDGED, ARCHIVED))
            count = random.randrange(1, 4)
            ready_ms = random.choice((0, 0, 500)) if kind == AVAILABLE else 0
            batches.append(StateBatch(first, last, kind, count, ready_ms))
            for each in range(first, last + 1):
                expected[each] = (False, count, ready_ms) if kind == AVAILABLE else (True, 0, 0)
            offset = last + 1
        told = start + random.choice((0, 0, 1, 5, -3))
        state.apply_update(UpdateValue(0, 0, max(0, told), 0, tuple(batches)))
        start = max(start, told)
        expected = {each: value for each, value in expected.items() if each >= start}
        assert state.start_offset == start
        assert expanded(state) == expected
        if random.random() < 0.05:
            state = StoredState(state.snapshot(0), 0)
            assert expanded(state) == expected


def test_adjacent_settled_ranges_are_merged() -> None:
    state = StoredState(SnapshotValue(0, 0, 0, 0, 0, 0, 0, ()), 0)
    for offset in range(1, 2_000):
        kind = ACKNOWLEDGED if offset % 2 else ARCHIVED
        state.apply_update(UpdateValue(0, 0, 0, 0, (StateBatch(offset, offset, kind, 1),)))
    assert len(state.ranges) == 1
