"""Lookups of aborted transactions, compared with a plain list."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records.control import AbortedTransaction
from penstock.storage import aborted_transactions
from penstock.storage.aborted_transactions import AbortedRange, AbortedTransactions


def history(steps: list[int], ends: list[int]) -> list[AbortedRange]:
    """Begin and abort transactions in the order of `numbers`: each number is a producer, which begins or ends one."""
    open_from: dict[int, int] = {}
    ranges: list[AbortedRange] = []
    for offset, producer_id in enumerate([*steps, *ends]):
        if producer_id not in open_from:
            open_from[producer_id] = offset
            continue
        first = open_from.pop(producer_id)
        later_from = min(open_from.values(), default=offset + 1)
        ranges.append(AbortedRange(producer_id, first, offset, later_from))
    return ranges


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(st.integers(0, 6), max_size=150),
    block=st.sampled_from([1, 2, 3, 8]),
    start=st.integers(0, 160),
    length=st.integers(0, 60),
    data=st.data(),
)
def test_lookup_finds_exactly_the_overlapping_aborted_transactions(
    steps: list[int], block: int, start: int, length: int, data: st.DataObject
) -> None:
    ranges = history(steps, list(range(7)))
    usual, aborted_transactions._BLOCK = aborted_transactions._BLOCK, block
    try:
        aborted = AbortedTransactions(ranges)
        log_start = data.draw(st.integers(0, 160))
        for each, expected in (
            (aborted, ranges),
            (aborted.copy(), ranges),
            (aborted.starting_at(log_start), [one for one in ranges if one.last_offset >= log_start]),
            (
                aborted.without({2, 3, 5, 7, 11}),
                [one for one in ranges if one.last_offset not in (2, 3, 5, 7, 11)],
            ),
        ):
            assert list(each) == expected
            found = each.between(start, start + length)
            assert found == sorted(
                (
                    AbortedTransaction(one.producer_id, one.first_offset)
                    for one in expected
                    if one.last_offset >= start and one.first_offset < start + length
                ),
                key=lambda one: one.first_offset,
            )
            for producer_id in range(7):
                assert each.has(producer_id, start) == any(
                    one.producer_id == producer_id and one.first_offset <= start <= one.last_offset
                    for one in expected
                )
            assert each.has_marker(start) == (start in [one.last_offset for one in expected])
            assert each.reaches(start) == any(one.last_offset >= start for one in expected)
    finally:
        aborted_transactions._BLOCK = usual


def test_long_open_transaction_does_not_slow_aborted_transaction_lookups() -> None:
    """A lookup examines few entries, even with one transaction open during a hundred thousand aborted ones."""
    aborted = AbortedTransactions(
        AbortedRange(1, offset, offset + 1, later_from=0) for offset in range(2, 200_000, 2)
    )
    looked_at = 0

    class Counting:
        def __getitem__(self, place: int) -> int:
            nonlocal looked_at
            looked_at += 1
            return offsets[place]

    offsets = aborted._first_offsets
    aborted._first_offsets = Counting()  # type: ignore[assignment]
    assert aborted.between(1_000, 1_010) == [
        AbortedTransaction(1, offset) for offset in range(1_000, 1_010, 2)
    ]
    assert looked_at < 1_000
