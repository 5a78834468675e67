"""Hypothesis strategies for the subscriptions and assignments that consumers of a classic group exchange."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.groups.consumer_protocol import Subscription

names = st.text(min_size=1, max_size=8)
partitions = st.dictionaries(
    names, st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=4), max_size=4
)


@st.composite
def subscriptions(draw: st.DrawFn) -> Subscription:
    version = draw(st.integers(0, 3))
    return Subscription(
        version,
        draw(st.frozensets(names, max_size=4)),
        draw(partitions) if version >= 1 else {},
        draw(st.none() | names) if version >= 3 else None,
        draw(st.none() | st.binary(max_size=8)),
        draw(st.integers(-1, 2**31 - 1)) if version >= 2 else -1,
    )
