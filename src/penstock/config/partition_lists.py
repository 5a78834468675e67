"""Option types for lists by partition, separated by commas: replicas as `partition:broker`, offsets as
`partition:offset`. `*` means all replicas. Empty text is an empty list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from penstock.config.types import LONG_MAX, Kind

_ALL = "*"
_REPLICA = re.compile(r"(\d{1,10}):(\d{1,10})", re.ASCII)
_OFFSET = re.compile(r"(\d{1,10}):(\d{1,19})", re.ASCII)

OffsetsByPartition = Mapping[int, int]
NO_OFFSETS: OffsetsByPartition = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ReplicaList:
    members: frozenset[tuple[int, int]] = frozenset()
    """Pairs of partition and broker."""
    is_all: bool = False

    def __contains__(self, replica: tuple[int, int]) -> bool:
        return self.is_all or replica in self.members


NO_REPLICAS = ReplicaList()


@dataclass(frozen=True, slots=True)
class Replicas:
    """Option type for lists of replicas."""

    expected: str = "`partition:broker`, several separated by commas, `*` for all, or nothing"

    @property
    def kind(self) -> Kind:
        return Kind.LIST

    def parse(self, text: str) -> ReplicaList:
        items = [item.strip() for item in text.split(",") if item.strip()]
        if items == [_ALL]:
            return ReplicaList(is_all=True)
        found = [_REPLICA.fullmatch(item) for item in items]
        if None in found:
            raise ValueError(text)
        return ReplicaList(frozenset((int(match[1]), int(match[2])) for match in found if match))

    def format(self, value: ReplicaList) -> str:
        return (
            _ALL if value.is_all else ",".join(f"{index}:{broker}" for index, broker in sorted(value.members))
        )


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Option type for offsets by partition."""

    expected: str = "`partition:offset`, several separated by commas, or nothing"

    @property
    def kind(self) -> Kind:
        return Kind.LIST

    def parse(self, text: str) -> OffsetsByPartition:
        found: dict[int, int] = {}
        for item in (item.strip() for item in text.split(",") if item.strip()):
            match = _OFFSET.fullmatch(item)
            if match is None or int(match[2]) > LONG_MAX or int(match[1]) in found:
                raise ValueError(text)
            found[int(match[1])] = int(match[2])
        return MappingProxyType(found)

    def format(self, value: OffsetsByPartition) -> str:
        return ",".join(f"{partition}:{offset}" for partition, offset in sorted(value.items()))
