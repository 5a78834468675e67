"""The aborted transactions of a log, which a reader of committed records has to skip (KIP-98).

Transactions are kept in the order of their markers. Each has an offset below which no transaction with a later marker
begins, which ends a lookup. While one transaction stays open for long, that offset hardly rises; a lookup then skips
whole blocks by the lowest first offset of each block. The loop thread appends to the collection and never removes from
it: to shrink, the log replaces the collection by a smaller one, and a reader that holds the old collection still finds
the transactions of the bytes that it reads. Any thread may read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from penstock.records.control import AbortedTransaction

_BLOCK = 256


class AbortedRange(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the transaction's marker."""
    later_from: int
    """No transaction whose marker comes later begins below this offset."""


class AbortedTransactions:
    __slots__ = ("_first_offsets", "_last_offsets", "_later_from", "_least_of_block", "_producer_ids")

    def __init__(self, ranges: Iterable[AbortedRange] = ()) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._later_from = array("q")
        self._last_offsets = array("q")
        self._least_of_block = array("q")
        for aborted in ranges:
            self.add(aborted)

    def __len__(self) -> int:
        return len(self._last_offsets)

    def __iter__(self) -> Iterator[AbortedRange]:
        for place in range(len(self)):
            yield AbortedRange(
                self._producer_ids[place],
                self._first_offsets[place],
                self._last_offsets[place],
                self._later_from[place],
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbortedTransactions) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def add(self, aborted: AbortedRange) -> None:
        self._producer_ids.append(aborted.producer_id)
        self._first_offsets.append(aborted.first_offset)
        self._later_from.append(aborted.later_from)
        if len(self) % _BLOCK == 0:
            self._least_of_block.append(aborted.first_offset)
        elif aborted.first_offset < self._least_of_block[-1]:
            self._least_of_block[-1] = aborted.first_offset
        self._last_offsets.append(aborted.last_offset)  # last, because readers read this column first

    def between(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The transactions that may have records in [`from_offset`, `to_offset`), sorted by their first offset."""
        found = [
            AbortedTransaction(self._producer_ids[place], self._first_offsets[place])
            for place in self._overlapping(from_offset, to_offset)
        ]
        return sorted(found, key=_first_offset)

    def has(self, producer_id: int, offset: int) -> bool:
        """True if `offset`, written by the producer in a transaction, belongs to an aborted transaction."""
        return any(
            self._producer_ids[place] == producer_id for place in self._overlapping(offset, offset + 1)
        )

    def _overlapping(self, from_offset: int, to_offset: int) -> Iterator[int]:
        count = len(self)
        place = bisect_left(self._last_offsets, from_offset, 0, count)
        while place < count:
            if place % _BLOCK == 0 and self._least_of_block[place // _BLOCK] >= to_offset:
                place += _BLOCK
                continue
            if self._first_offsets[place] < to_offset:
                yield place
            if self._later_from[place] >= to_offset:
                return
            place += 1

    def has_marker(self, offset: int) -> bool:
        """True if a transaction has its marker at `offset`."""
        place = bisect_left(self._last_offsets, offset)
        return place < len(self) and self._last_offsets[place] == offset

    def reaches(self, offset: int) -> bool:
        """True if a transaction has its marker at or after `offset`."""
        return len(self) > 0 and self._last_offsets[-1] >= offset

    def starting_at(self, log_start_offset: int) -> AbortedTransactions:
        """The transactions whose markers are at or above `log_start_offset`."""
        place = bisect_left(self._last_offsets, log_start_offset)
        return self if place == 0 else self._from(place)

    def copy(self) -> AbortedTransactions:
        return self._from(0)

    def without(self, last_offsets: Container[int]) -> AbortedTransactions:
        """All transactions except those whose marker is at one of `last_offsets`."""
        return AbortedTransactions(aborted for aborted in self if aborted.last_offset not in last_offsets)

    def _from(self, place: int) -> AbortedTransactions:
        some = AbortedTransactions()
        some._producer_ids = self._producer_ids[place:]
        some._first_offsets = self._first_offsets[place:]
        some._later_from = self._later_from[place:]
        some._last_offsets = self._last_offsets[place:]
        firsts = some._first_offsets
        some._least_of_block = array(
            "q", (min(firsts[start : start + _BLOCK]) for start in range(0, len(firsts), _BLOCK))
        )
        return some


def _first_offset(aborted: AbortedTransaction) -> int:
    return aborted.first_offset
