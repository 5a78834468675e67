"""Packed delayed messages: the compiled and the Python implementation give the same pairs and blocks."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.delay import packing
from penstock.delay.due_blocks import unpack_blocks
from penstock.delay.marking import CANCEL, DELAY_MS, DELIVER_AT, DELIVERED, MARK, OTHER
from penstock.delay.packing import pack_blocks_in_python, pack_pairs, plain_delays_in_python, unpack_pairs

IS_COMPILED = find_spec("penstock.delay._marks") is not None
needs_compiler = pytest.mark.skipif(not IS_COMPILED, reason="the extension was not compiled")
YEAR_MS = 31_536_000_000
LIMIT = 1 << 62

kinds = st.sampled_from([DELAY_MS, DELAY_MS, DELIVER_AT, DELIVER_AT, OTHER, CANCEL, DELIVERED])
marks = st.lists(
    st.tuples(
        st.integers(0, 1 << 31),
        st.integers(-5, 5),
        kinds,
        st.integers(-1, YEAR_MS),
        st.sampled_from([-1, -1, 3]),
    )
)
messages = st.dictionaries(st.integers(0, 1_000), st.integers(0, 60) | st.integers(0, 2 * YEAR_MS)).map(
    lambda dues: [(due, message) for message, due in dues.items()]
)


@needs_compiler
@given(marks, st.integers(0, LIMIT), st.integers(0, YEAR_MS), st.booleans())
def test_both_implementations_find_the_same_delays(
    found: list[tuple[int, int, int, int, int]], base_offset: int, time_ms: int, is_relative: bool
) -> None:
    packed = b"".join(MARK.pack(*mark, -1, 0, 1) for mark in found)
    arguments = (packed, base_offset, time_ms, is_relative)
    assert packing.plain_delays(*arguments) == plain_delays_in_python(*arguments)


@pytest.mark.parametrize("plain_delays", dict.fromkeys((plain_delays_in_python, packing.plain_delays)))
def test_delays_count_from_the_time_of_each_record(plain_delays: Callable[..., bytes | None]) -> None:
    packed = MARK.pack(0, 2, DELAY_MS, 10, -1, -1, 0, 1) + MARK.pack(4, 3, DELIVER_AT, 77, -1, -1, 0, 1)
    assert plain_delays(packed, 100, 1_000, True) == pack_pairs([(1_012, 100), (77, 104)])
    assert plain_delays(packed, 100, 1_000, False) == pack_pairs([(1_010, 100), (77, 104)])
    assert plain_delays(MARK.pack(0, 0, CANCEL, 5, -1, -1, 0, 1), 100, 1_000, False) is None


@needs_compiler
@given(messages, st.integers(1, 300), st.integers(1, 20))
@example([(2 * YEAR_MS, 5), (0, 6), (YEAR_MS, 7)], 64, 8)
def test_both_implementations_pack_the_same_blocks(
    found: list[tuple[int, int]], block_ids: int, block_messages: int
) -> None:
    pairs = pack_pairs(found)
    assert packing.pack_blocks(pairs, block_ids, block_messages) == pack_blocks_in_python(
        pairs, block_ids, block_messages
    )


@given(messages, st.integers(1, 300), st.integers(1, 20))
def test_blocks_have_each_message_once_and_sorted(
    found: list[tuple[int, int]], block_ids: int, block_messages: int
) -> None:
    blocks = list(unpack_blocks(packing.pack_blocks(pack_pairs(found), block_ids, block_messages)))
    assert sorted(each for block in blocks for each in block) == sorted(found)
    for block in blocks:
        here = list(block)
        assert here == sorted(here)
        assert block.count == len(here) <= block_messages
        assert len({each.message // block_ids for each in here}) == 1


@pytest.mark.parametrize("pack_blocks", dict.fromkeys((pack_blocks_in_python, packing.pack_blocks)))
def test_due_times_far_apart_make_two_runs(pack_blocks: Callable[[bytes, int, int], bytes]) -> None:
    far = [(5, 1), (5 + 2**32 - 1, 2), (5 + 2**32, 3)]
    (block,) = unpack_blocks(pack_blocks(pack_pairs(far), 64, 8))
    assert [len(run.ids) for run in block.runs] == [2, 1]
    assert list(unpack_pairs(pack_pairs(block))) == far
