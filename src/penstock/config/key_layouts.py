"""Key layouts of a topic: the partition counts by which keys were spread, with their start times, as in
`12@0,24@1767225600000`.
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


KeyLayouts = tuple[KeyLayout, ...]
NO_LAYOUTS: KeyLayouts = ()


@dataclass(frozen=True, slots=True)
class Layouts:
    """Option type for key layouts. Counts and times must increase."""

    expected: str = "`partitions@milliseconds`, growing, several separated by commas, or nothing"

    @property
    def kind(self) -> Kind:
        return Kind.LIST

    def parse(self, text: str) -> KeyLayouts:
        found = [_LAYOUT.fullmatch(item.strip()) for item in text.split(",") if item.strip()]
        layouts = tuple(KeyLayout(int(match[1]), int(match[2])) for match in found if match)
        pairs = pairwise(layouts)
        if None in found or any(a.partitions >= b.partitions or a.since_ms >= b.since_ms for a, b in pairs):
            raise ValueError(text)
        return layouts

    def format(self, value: KeyLayouts) -> str:
        return ",".join(f"{layout.partitions}@{layout.since_ms}" for layout in value)
