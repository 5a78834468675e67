"""Key layouts of a topic: the partition counts by which keys have been assigned to partitions, each with its start time
in milliseconds, as in `12@0,24@1767225600000`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from penstock.config.types import Kind

_LAYOUT = re.compile(r"(\d{1,5})@(\d{1,15})", re.ASCII)


class KeyLayout(NamedTuple):
    partitions: int
    since_ms: int
    raised_by: int = 0
    """Difference between `number` and the partition count; above 0 once the count was reduced."""

    @property
    def number(self) -> int:
        """Number that increases with every layout: the partition count, or a larger number if the count was reduced."""
        return self.partitions + self.raised_by


KeyLayouts = tuple[KeyLayout, ...]
NO_LAYOUTS: KeyLayouts = ()


def with_layout(layouts: KeyLayouts, partitions: int, since_ms: int) -> KeyLayouts:
    """Add a layout for a changed partition count."""
    number = max(partitions, layouts[-1].number + 1) if layouts else partitions
    return (*layouts, KeyLayout(partitions, since_ms, number - partitions))


@dataclass(frozen=True, slots=True)
class Layouts:
    """Option type for key layouts. Start times must increase, and consecutive counts must differ."""

    expected: str = (
        "`partitions@milliseconds`, in ascending order of time, several separated by commas, or nothing"
    )

    @property
    def kind(self) -> Kind:
        return Kind.LIST

    def parse(self, text: str) -> KeyLayouts:
        found = [_LAYOUT.fullmatch(item.strip()) for item in text.split(",") if item.strip()]
        layouts = NO_LAYOUTS
        for match in found:
            if match is None:
                raise ValueError(text)
            layouts = with_layout(layouts, int(match[1]), int(match[2]))
        if any(a.partitions == b.partitions or a.since_ms >= b.since_ms for a, b in pairwise(layouts)):
            raise ValueError(text)
        return layouts

    def format(self, value: KeyLayouts) -> str:
        return ",".join(f"{layout.partitions}@{layout.since_ms}" for layout in value)
