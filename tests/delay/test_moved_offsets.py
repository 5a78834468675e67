"""Offsets of messages that were stored again: the same answers as a dict, in little memory."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from penstock.delay.moved_offsets import MovedOffsets

messages = st.integers(0, 40)
offsets = st.integers(0, 300) | st.integers(2**40, 2**40 + 300)
steps = st.lists(st.tuples(messages, st.none() | offsets), max_size=120)


@given(steps)
def test_offsets_are_those_of_a_dict(steps: list[tuple[int, int | None]]) -> None:
    moved, model = MovedOffsets(part_ids=16, dense=4, max_short=100), dict[int, int]()
    for message, offset in steps:
        if offset is None:
            moved.discard(message)
            model.pop(message, None)
        else:
            moved.put(message, offset)
            model[message] = offset
        assert bool(moved) == bool(model)
        assert [moved.get(each, -7) for each in range(41)] == [model.get(each, -7) for each in range(41)]


def test_neighbours_take_a_few_bytes_each() -> None:
    count = 200_000
    tracemalloc.start()
    moved = MovedOffsets()
    for message in range(count):
        moved.put(message, 10**12 + message)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size < 8 * count
    assert moved.get(count - 1, -1) == 10**12 + count - 1
