"""Offsets by partition, as a setting has them: `partition:offset` with commas between, nothing for none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from penstock.config.types import LONG_MAX, Kind

_ITEM = re.compile(r"(\d{1,10}):(\d{1,19})", re.ASCII)

OffsetsByPartition = Mapping[int, int]
NO_OFFSETS: OffsetsByPartition = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The kind of value that such a setting has."""

    expected: str = "`partition:offset`, several separated by commas, or nothing"

    @property
    def kind(self) -> Kind:
        return Kind.LIST

    def parse(self, text: str) -> OffsetsByPartition:
        found: dict[int, int] = {}
        for item in (item.strip() for item in text.split(",") if item.strip()):
            match = _ITEM.fullmatch(item)
            if match is None or int(match[2]) > LONG_MAX or int(match[1]) in found:
                raise ValueError(text)
            found[int(match[1])] = int(match[2])
        return MappingProxyType(found)

    def format(self, value: OffsetsByPartition) -> str:
        return ",".join(f"{partition}:{offset}" for partition, offset in sorted(value.items()))
