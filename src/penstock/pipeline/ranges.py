"""What a task reads: the offsets of one partition from a start up to and without an end; and how work is split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """By topic id too: a topic that was deleted and made again is another one."""

    topic: str
    topic_id: str
    """As hexadecimal digits: ranges travel to tasks as plain values."""
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)


def split(ranges: Iterable[OffsetRange], at_least: int) -> list[OffsetRange]:
    """The same offsets in at least so many ranges, where there are so many offsets; the longest are split most."""
    found = [each for each in ranges if len(each)]
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
