"""Replicas as Kafka's settings name them: `partition:broker` with commas between, `*` for all, nothing for none."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.config.types import Kind

_ALL = "*"
_REPLICA = re.compile(r"(\d{1,10}):(\d{1,10})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReplicaList:
    members: frozenset[tuple[int, int]] = frozenset()
    """Partition and broker."""
    is_all: bool = False

    def __contains__(self, replica: tuple[int, int]) -> bool:
        return self.is_all or replica in self.members


NO_REPLICAS = ReplicaList()


@dataclass(frozen=True, slots=True)
class Replicas:
    """The kind of value that such a setting has."""

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
