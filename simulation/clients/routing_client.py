"""A simulated client of all brokers: it looks up leaders at any broker, and believes the latest leader epoch. A
broker alone leads everything: its clients look up nothing and name no epoch.

It has a connection to each broker. After an error or an unknown outcome `mistrust` makes it look up the
leader again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from simulation.clients.client import NoAnswer, SimulatedClient, check_error

NO_BROKER = -1
NO_EPOCH = -1
GROUP, TRANSACTION = 0, 1
"""The kinds of coordinators."""


class RoutingClient:
    def __init__(
        self, name: str, brokers: Mapping[int, SimulatedClient], random: random.Random, *, is_alone: bool
    ) -> None:
        self.name = name
        self._brokers = brokers
        self._random = random
        self._is_alone = is_alone
        self._leaders: dict[tuple[str, int], int] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._coordinators: dict[tuple[str, int], int] = {}

    @property
    def first(self) -> SimulatedClient:
        """The connection to the first broker, and the only one of a broker alone."""
        return next(iter(self._brokers.values()))

    async def any_broker(self) -> SimulatedClient:
        """Connect to any broker."""
        client = self._random.choice(list(self._brokers.values()))
        await client.connect()
        return client

    def disconnect(self) -> None:
        for client in self._brokers.values():
            client.disconnect()

    async def broker(self, node_id: int) -> SimulatedClient:
        """Connect to this broker."""
        await self._brokers[node_id].connect()
        return self._brokers[node_id]

    async def leader(self, topic: str, partition: int) -> tuple[SimulatedClient, int]:
        """Connect to the leader of a partition; return the connection and the leader epoch. NoAnswer when no
        leader is known.
        """
        if self._is_alone:
            return await self.any_broker(), NO_EPOCH
        place = (topic, partition)
        if self._leaders.get(place, NO_BROKER) == NO_BROKER:
            await self._look_up()
        leader = self._leaders.get(place, NO_BROKER)
        if leader == NO_BROKER:
            raise NoAnswer(f"{topic}-{partition} has no leader")
        try:
            await self._brokers[leader].connect()
        except NoAnswer:
            self.mistrust(topic, partition)
            raise
        return self._brokers[leader], self._epochs[place]

    def known_leader(self, topic: str, partition: int) -> int:
        """The broker that `leader` has connected to."""
        return self._leaders[topic, partition]

    def forget(self, topic: str, partition: int) -> None:
        """Believe any epoch again: a topic that is created again under its name begins with epoch 0."""
        self._leaders.pop((topic, partition), None)
        self._epochs.pop((topic, partition), None)

    def mistrust(self, topic: str, partition: int) -> None:
        self._leaders.pop((topic, partition), None)

    async def _look_up(self) -> None:
        for place, (leader, epoch) in (await (await self.any_broker()).leaders()).items():
            if epoch >= self._epochs.get(place, -1):
                self._leaders[place], self._epochs[place] = leader, epoch

    # --- coordinators

    async def coordinator(self, key: str, kind: int = GROUP) -> tuple[int, SimulatedClient]:
        """Connect to the coordinator of a group or a transactional id; return its node id and the connection."""
        if (key, kind) not in self._coordinators:
            fields = {"key": key, "key_type": kind, "coordinator_keys": [key]}
            response = await (await self.any_broker()).ask("FindCoordinator", (4, 6), fields)
            check_error(response.coordinators[0].error_code)
            self._coordinators[key, kind] = response.coordinators[0].node_id
        node_id = self._coordinators[key, kind]
        try:
            await self._brokers[node_id].connect()
        except NoAnswer:
            self.mistrust_coordinator(key, kind)
            raise
        return node_id, self._brokers[node_id]

    def mistrust_coordinator(self, key: str, kind: int = GROUP) -> None:
        self._coordinators.pop((key, kind), None)
