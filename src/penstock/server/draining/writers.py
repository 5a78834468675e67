"""Clients that write to draining partitions, with the time of their last write. Bounded; loop thread only."""

from __future__ import annotations

from collections.abc import Collection

from penstock.model import TopicPartition
from penstock.server.draining.known_clients import ClientIdentity

MAX_WRITERS = 100
"""Maximum number of writers that are remembered for a partition. Those with the oldest writes are forgotten."""


class Writers:
    def __init__(self) -> None:
        self._last_ms: dict[TopicPartition, dict[ClientIdentity, int]] = {}

    def note(self, name: TopicPartition, client: ClientIdentity, now_ms: int) -> None:
        writers = self._last_ms.setdefault(name, {})
        writers.pop(client, None)
        writers[client] = now_ms
        if len(writers) > MAX_WRITERS:
            del writers[next(iter(writers))]

    def __len__(self) -> int:
        """Number of different clients."""
        return len({client for writers in self._last_ms.values() for client in writers})

    def of(self, name: TopicPartition) -> list[tuple[ClientIdentity, int]]:
        """Writers of a partition with the times of their last writes, newest first."""
        return list(reversed(self._last_ms.get(name, {}).items()))

    def keep(self, names: Collection[TopicPartition]) -> None:
        """Forget partitions that are not in `names`."""
        for name in self._last_ms.keys() - set(names):
            del self._last_ms[name]
