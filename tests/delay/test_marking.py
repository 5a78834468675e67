"""Marks of a batch: the compiled and the Python implementation lead to the same events and the same refusals."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delay import marking
from penstock.delay.checking import DelayRules, check_delays
from penstock.delay.events import Delayed, DelayedRun, Event, events_of
from penstock.delay.headers import CANCEL, DELAY_MS, DELIVER_AT, ORIGIN_OFFSET, ORIGIN_TIMESTAMP
from penstock.delay.marking import clear_bits_in_python, find_marks_in_python
from penstock.delay.packing import unpack_pairs
from penstock.errors import InvalidBatch
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.building import NewRecord, build_batch

LIMIT = 1 << 20
NOW_MS = 1_000
IS_COMPILED = find_spec("penstock.delay._marks") is not None
needs_compiler = pytest.mark.skipif(not IS_COMPILED, reason="the extension was not compiled")

values = st.sampled_from(
    [b"5", b"0", b"", None, b"-1", b"9" * 18, b"9" * 19, b"soon", b"2030-01-01T00:00:00Z"]
)
names = st.sampled_from(
    [DELAY_MS, DELIVER_AT, CANCEL, ORIGIN_OFFSET, ORIGIN_TIMESTAMP, "penstock-other", "penstock-", "x"]
)
headers = st.lists(st.tuples(names, values), max_size=3).map(tuple)
batches = st.lists(
    st.builds(NewRecord, st.just(b"k"), st.just(b"v"), st.just(7), headers), min_size=1, max_size=9
)


def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marking, "find_marks", find_marks_in_python)


def events(batch: memoryview) -> list[Event]:
    """Events of a batch, one by one."""
    found: list[Event] = []
    for event in events_of(batch, read_header(batch), LIMIT):
        if isinstance(event, DelayedRun):
            found += (Delayed(each.message, each.due_ms, each.message) for each in unpack_pairs(event.pairs))
        else:
            found.append(event)
    return found


def refusal(batch: memoryview) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """The refusal of a batch and its records, or the messages that it cancels."""
    rules = DelayRules(-1, 100, LIMIT)
    try:
        return "", (), check_delays(batch, read_header(batch), rules, NOW_MS).cancels
    except InvalidBatch as error:
        return str(error), tuple(error.records), ()


@needs_compiler
@given(batches)
def test_both_implementations_find_the_same(records: list[NewRecord]) -> None:
    batch = memoryview(build_batch(records))
    compiled = events(batch), refusal(batch)
    with pytest.MonkeyPatch.context() as monkeypatch:
        in_python(monkeypatch)
        assert (events(batch), refusal(batch)) == compiled


@needs_compiler
@given(batches, st.integers(0, 400), st.integers(0, 255), st.integers(-1, 12))
def test_damaged_bodies_are_refused_by_both(
    records: list[NewRecord], place: int, byte: int, count: int
) -> None:
    from penstock.delay._marks import find_marks

    body = bytearray(build_batch(records)[HEADER_SIZE:])
    body[place % len(body)] = byte
    outcomes: list[bool | None] = []
    for find in (find_marks, find_marks_in_python):
        try:
            outcomes.append(find(bytes(body), count, -1, -1)[1])
        except ValueError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("implementation", [None, *([marking.clear_bits] if IS_COMPILED else [])])
def test_bits_of_ids_are_cleared_once(implementation: Callable[..., int] | None) -> None:
    clear = implementation or clear_bits_in_python
    bits = bytearray(b"\xff\xff")
    ids = array("q", [99, 100, 107, 115, 116, 100])
    assert clear(bits, 100, ids.tobytes()) == 3
    assert bits == bytearray([0b01111110, 0b01111111])


def test_a_batch_within_the_limits_is_checked_at_once() -> None:
    rules = DelayRules(-1, 100, LIMIT)
    for header, must_wait in (((DELAY_MS, b"5"), False), ((CANCEL, b"5"), True)):
        batch = memoryview(build_batch([NewRecord(b"k", b"v", 7, (header,))]))
        assert rules.must_wait(batch, read_header(batch), NOW_MS) is must_wait
