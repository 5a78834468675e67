"""Offsets of open transactions in a shard, by producer (KIP-98, KIP-447).

When the transaction is committed they become the group's offsets, unless a later record of the log has
replaced them; when it is aborted they are dropped. While a partition has such an offset, a request for stable
offsets gets no offset for the partition. Pure. Called by `offsets` alone, in log order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from penstock.groups.records import OffsetKey, OffsetValue


class TransactionalOffsets:
    def __init__(self) -> None:
        self._producers: dict[int, dict[OffsetKey, tuple[int, OffsetValue]]] = {}
        """Offset values of each producer, each with a sequence number that orders it among all changes."""
        self._groups: dict[str, dict[OffsetKey, set[int]]] = {}
        """Ids of the producers that have a value for a key, by group id and key."""
        self._in_flight: dict[OffsetKey, int] = {}
        self._order = count()

    def begin(self, keys: Iterable[OffsetKey]) -> None:
        """Mark the keys of a commit as pending."""
        for key in keys:
            self._in_flight[key] = self._in_flight.get(key, 0) + 1

    def end(self, keys: Iterable[OffsetKey]) -> None:
        """End a pending commit, which was either committed and added, or refused."""
        for key in keys:
            self._in_flight[key] -= 1
            if not self._in_flight[key]:
                del self._in_flight[key]

    def add(self, producer_id: int, key: OffsetKey, value: OffsetValue) -> None:
        self._producers.setdefault(producer_id, {})[key] = (next(self._order), value)
        self._groups.setdefault(key.group_id, {}).setdefault(key, set()).add(producer_id)

    def take(self, producer_id: int) -> Iterator[tuple[OffsetKey, OffsetValue]]:
        """Remove and yield the offsets of a committed transaction, and drop all older values of the same keys."""
        for key, (order, value) in tuple(self._producers.get(producer_id, {}).items()):
            self._forget(key, order + 1)
            yield key, value

    def groups_of(self, producer_id: int) -> set[str]:
        """Ids of the groups for which the producer's open transaction has pending offsets."""
        return {key.group_id for key in self._producers.get(producer_id, ())}

    def drop(self, producer_id: int) -> None:
        """Drop the offsets of an aborted transaction."""
        for key in self._producers.pop(producer_id, {}):
            self._forget_producer(key, producer_id)

    def replace(self, key: OffsetKey) -> None:
        """Drop older values of the key, which a later record outside of transactions replaces."""
        if key.group_id in self._groups:
            self._forget(key, next(self._order))

    def has(self, group_id: str) -> bool:
        return group_id in self._groups or any(key.group_id == group_id for key in self._in_flight)

    def groups(self) -> Iterable[str]:
        return self._groups.keys()

    def keys(self, group_id: str) -> set[OffsetKey]:
        """Keys of the group whose offset an open transaction or a pending commit may change."""
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
