"""Fetchers of this broker, one for each broker that leads a partition followed here."""

from __future__ import annotations

import asyncio

from penstock.model import BrokerId
from penstock.replication.context import ReplicationContext
from penstock.replication.fetcher import Fetcher, ReplicaOwner
from penstock.replication.replica import Replica


class Fetchers:
    def __init__(self, owner: ReplicaOwner, context: ReplicationContext) -> None:
        self._owner = owner
        self._context = context
        self._fetchers: dict[BrokerId, Fetcher] = {}
        self._leaders: dict[Replica, BrokerId] = {}

    def follow(self, replica: Replica, leader: BrokerId) -> None:
        """Fetch the replica's records from `leader` from now on, in the replica's leader epoch."""
        self.unfollow(replica)
        self._leaders[replica] = leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(leader, self._owner, self._context)
        fetcher.follow(replica)

    def unfollow(self, replica: Replica) -> None:
        leader = self._leaders.pop(replica, None)
        if leader is not None:
            self._fetchers[leader].unfollow(replica)

    def say_again(self, replica: Replica) -> None:
        """Send the replica's log end and flushed offset to its leader again."""
        leader = self._leaders.get(replica)
        if leader is not None:
            self._fetchers[leader].say_again(replica)

    async def stop(self) -> None:
        await asyncio.gather(*(fetcher.stop() for fetcher in self._fetchers.values()))
        self._fetchers.clear()
        self._leaders.clear()
