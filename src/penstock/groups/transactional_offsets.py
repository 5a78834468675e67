"""Offsets that are part of transactions which have not ended: those of a shard, by producer (KIP-98, KIP-447).

On commit they become the group's offsets, except where something later in the log has taken their place; on abort they
are gone. While a partition has one, nobody who asks for stable offsets is answered for it. Pure. Called by `offsets`
alone, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from penstock.groups.records import OffsetKey, OffsetValue


class TransactionalOffsets:
    def __init__(self) -> None:
        self._producers: dict[int, dict[OffsetKey, tuple[int, OffsetValue]]] = {}
        """With each value its place in the order of all."""
        self._groups: dict[str, dict[OffsetKey, set[int]]] = {}
        """Which producers have a value for a key."""
        self._in_flight: dict[OffsetKey, int] = {}
        self._order = count()

    def begin(self, keys: Iterable[OffsetKey]) -> None:
        """A commit of these is on its way into the log."""
        for key in keys:
            self._in_flight[key] = self._in_flight.get(key, 0) + 1

    def end(self, keys: Iterable[OffsetKey]) -> None:
        """It has arrived (and was added), or was refused."""
        for key in keys:
            self._in_flight[key] -= 1
            if not self._in_flight[key]:
                del self._in_flight[key]

    def add(self, producer_id: int, key: OffsetKey, value: OffsetValue) -> None:
        self._producers.setdefault(producer_id, {})[key] = (next(self._order), value)
        self._groups.setdefault(key.group_id, {}).setdefault(key, set()).add(producer_id)

    def take(self, producer_id: int) -> Iterator[tuple[OffsetKey, OffsetValue]]:
        """The transaction has ended: its offsets, which are forgotten here with all that they replace."""
        for key, (order, value) in tuple(self._producers.get(producer_id, {}).items()):
            self._forget(key, order + 1)
            yield key, value

    def groups_of(self, producer_id: int) -> set[str]:
        """Those that the producer's transaction has offsets of."""
        return {key.group_id for key in self._producers.get(producer_id, ())}

    def drop(self, producer_id: int) -> None:
        """The transaction was aborted."""
        for key in self._producers.pop(producer_id, {}):
            self._forget_producer(key, producer_id)

    def replace(self, key: OffsetKey) -> None:
        """Something that comes later in the log, and is in no transaction, has taken their place."""
        if key.group_id in self._groups:
            self._forget(key, next(self._order))

    def has(self, group_id: str) -> bool:
        return group_id in self._groups or any(key.group_id == group_id for key in self._in_flight)

    def groups(self) -> Iterable[str]:
        return self._groups.keys()

    def keys(self, group_id: str) -> set[OffsetKey]:
        """The partitions of the group whose offset is not certain."""
        in_flight = (key for key in self._in_flight if key.group_id == group_id)
        return {*self._groups.get(group_id, {}), *in_flight}

    def _forget(self, key: OffsetKey, below: int) -> None:
        for producer_id in tuple(self._groups.get(key.group_id, {}).get(key, ())):
            values = self._producers[producer_id]
            if values[key][0] < below:
                del values[key]
                if not values:
                    del self._producers[producer_id]
                self._forget_producer(key, producer_id)

    def _forget_producer(self, key: OffsetKey, producer_id: int) -> None:
        keys = self._groups[key.group_id]
        keys[key].discard(producer_id)
        if not keys[key]:
            del keys[key]
            if not keys:
                del self._groups[key.group_id]
