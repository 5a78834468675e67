"""Offset ranges of partitions, and how they are split among tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `start` (inclusive) to `end` (exclusive) of a partition. The topic id distinguishes topics that had the
    same name.
    """

    topic: str
    topic_id: str
    """Topic id as hexadecimal digits, because Spark sends ranges to tasks."""
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)


def split(ranges: Iterable[OffsetRange], at_least: int, longest: int | None = None) -> list[OffsetRange]:
    """Split ranges into at least `at_least` ranges if there are enough offsets; longer ranges are split into more
    parts. Each part has at most `longest` offsets.
    """
    found = [each for each in ranges if len(each)]
    if longest is not None:
        found = [part for each in found for part in _cut(each, -(-len(each) // longest))]
    total = sum(map(len, found))
    if not found or at_least <= len(found):
        return found
    pieces: list[OffsetRange] = []
    for each in found:
        parts = min(len(each), max(1, -(-len(each) * at_least // total)))
        pieces += _cut(each, parts)
    return pieces


def _cut(range_: OffsetRange, parts: int) -> Sequence[OffsetRange]:
    bounds = [range_.start + len(range_) * part // parts for part in range(parts + 1)]
    return [replace(range_, start=low, end=high) for low, high in pairwise(bounds)]
