"""Positions as text: they round-trip, and no other text is accepted."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.push.position import MAX_LENGTH, ForeignPosition, decode_positions, encode_positions

ORDERS, OTHERS = UUID(int=1), UUID(int=2)


@given(st.dictionaries(st.integers(0, 100_000), st.integers(0, 2**63 - 1), max_size=50))
def test_positions_round_trip(positions: dict[int, int]) -> None:
    text = encode_positions(ORDERS, positions)
    assert text.isascii()
    assert decode_positions(ORDERS, text) == positions
    with pytest.raises(ForeignPosition):
        decode_positions(OTHERS, text)


@given(st.text(max_size=60))
def test_other_text_is_not_a_position(text: str) -> None:
    with pytest.raises(ForeignPosition):
        decode_positions(ORDERS, text)


def test_changed_or_endless_position_is_refused() -> None:
    text = encode_positions(ORDERS, {0: 5, 3: 1_000_000})
    for place in range(len(text)):
        changed = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        with pytest.raises(ForeignPosition):
            decode_positions(ORDERS, changed)
    with pytest.raises(ForeignPosition):
        decode_positions(ORDERS, "A" * (MAX_LENGTH + 1))
