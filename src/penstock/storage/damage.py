"""Damage of a log: ranges of offsets whose records were stored and cannot be read any more.

A log keeps its damaged ranges in order, without overlaps, as a tuple that is replaced and never changed. A read at an
offset inside a range is an error: a reader must never skip lost records silently. Records behind a range stay readable.
A truncation below a range or a log start above it ends the damage. Any thread may read a tuple of ranges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.model import Offset


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """The offsets in [`base_offset`, `end_offset`), whose records are lost or unreadable."""

    base_offset: Offset
    end_offset: Offset
    reason: str
    """Description of the damage for log lines and `/health`."""

    def __contains__(self, offset: int) -> bool:
        return self.base_offset <= offset < self.end_offset

    def __str__(self) -> str:
        return f"offsets {self.base_offset} to {self.end_offset - 1} are damaged: {self.reason}"


Damage = tuple[DamagedRange, ...]
NO_DAMAGE: Damage = ()


def merge_damage(ranges: Iterable[DamagedRange]) -> Damage:
    """The ranges in order. If two overlap, the later range is shortened to begin where the earlier range ends."""
    merged: list[DamagedRange] = []
    for each in sorted(ranges, key=lambda damaged: (damaged.base_offset, -damaged.end_offset)):
        base_offset = max(each.base_offset, merged[-1].end_offset) if merged else each.base_offset
        if base_offset < each.end_offset:
            merged.append(replace(each, base_offset=base_offset))
    return tuple(merged)


def clip_damage(damage: Damage, start_offset: Offset, end_offset: Offset) -> Damage:
    """The part of the damage in [`start_offset`, `end_offset`)."""
    clipped = (
        replace(
            each,
            base_offset=max(each.base_offset, start_offset),
            end_offset=min(each.end_offset, end_offset),
        )
        for each in damage
    )
    return tuple(each for each in clipped if each.base_offset < each.end_offset)


def before_damage(damage: Damage, offset: Offset) -> Offset:
    """The start of the damage around an offset; the offset itself if it is not damaged."""
    for each in reversed(damage):
        if offset in each:
            offset = each.base_offset
    return offset


def next_damage(damage: Damage, offset: Offset) -> DamagedRange | None:
    """The first range that ends after `offset`."""
    for each in damage:
        if each.end_offset > offset:
            return each
    return None
