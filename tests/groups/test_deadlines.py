"""Deadlines that are mostly postponed: each fires once, when it is due, and postponed ones take no memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.deadlines import Deadlines

KEYS = st.sampled_from("abcd")
TIMES = st.integers(0, 50)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, TIMES),
        st.tuples(st.just("discard"), KEYS, st.just(0)),
        st.tuples(st.just("pop"), st.just(""), TIMES),
    )
)


@given(ACTIONS)
def test_due_deadlines_equal_those_of_a_plain_dict(actions: list[tuple[str, str, int]]) -> None:
    deadlines = Deadlines()
    expected: dict[str, int] = {}
    for action, key, ms in actions:
        if action == "set":
            deadlines.set(key, ms)
            expected[key] = ms
        elif action == "discard":
            deadlines.discard(key)
            expected.pop(key, None)
        else:
            due = set()
            while (popped := deadlines.pop(ms)) is not None:
                due.add(popped)
            assert due == {key for key, at_ms in expected.items() if at_ms <= ms}
            expected = {key: at_ms for key, at_ms in expected.items() if at_ms > ms}
        assert len(deadlines) == len(expected)
        assert (deadlines.next_ms is None) == (not expected)
        if expected:
            assert deadlines.next_ms is not None
            assert deadlines.next_ms <= min(expected.values())


def test_removed_deadlines_take_no_memory() -> None:
    deadlines = Deadlines()
    deadlines.set("stays", 10**9)
    for number in range(10_000):
        deadlines.set(str(number), 10**6)
        deadlines.set(str(number), 10**5)
        deadlines.discard(str(number))
    assert len(deadlines._heap) < 100
