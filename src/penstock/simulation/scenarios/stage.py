"""The state that all actors of a simulation share: the world, the broker, its topics, and the gate at which clients
wait.

The gate of a broker alone is closed from the end of its process until the next one was audited.
"""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

from penstock.simulation.clients.client import SimulatedClient
from penstock.simulation.machine.host import SimulatedWorld
from penstock.simulation.models.group_model import GroupModel
from penstock.simulation.models.topic_model import TopicModel, TopicState
from penstock.simulation.scenarios.broker_host import PORT, BrokerHost

CLIENT_HOST = "clients"


class Stage:
    def __init__(self, world: SimulatedWorld, broker: BrokerHost) -> None:
        self.world = world
        self.broker = broker
        self.topics: dict[str, TopicModel] = {}
        self.groups: list[GroupModel] = []
        self.report_seconds = 0.2
        """The seconds between two reports of a group member."""
        self.is_at_rest = False
        """Whether peace has come: no member of a group joins or leaves any more."""
        self.is_quiet = False
        """Whether clients send nothing, so that a scrub reads logs that do not grow."""
        self.gate = asyncio.Event()
        self.operations = 0
        self._clients: list[SimulatedClient] = []

    def client(self, name: str, gate: asyncio.Event | None = None) -> SimulatedClient:
        network = self.world.network.host(CLIENT_HOST)
        address = (self.broker.host.name, PORT)
        client = SimulatedClient(
            name, network, address, gate or self.gate, self.world.random(f"{name}/client")
        )
        self._clients.append(client)
        return client

    def close_gate(self) -> None:
        """Close the gate and all connections, so that no response of the dead process reaches a client."""
        self.gate.clear()
        for client in self._clients:
            client.disconnect()

    def now_ms(self) -> int:
        """Return the time of the clients' clocks."""
        return self.broker.host.clock.now_ms()

    def living_topics(self) -> list[TopicModel]:
        return [topic for topic in self.topics.values() if topic.state is TopicState.ALIVE]

    def living(self, name: str) -> TopicModel | None:
        topic = self.topics.get(name)
        return topic if topic is not None and topic.state is TopicState.ALIVE else None

    async def topic_id(self, client: SimulatedClient, topic: TopicModel) -> UUID | None:
        """Look up a topic id; None for a topic that does not exist."""
        if topic.id is None:
            ids = await client.topic_ids()
            for known in self.living_topics():
                known.id = known.id or ids.get(known.name)
        return topic.id if topic.state is TopicState.ALIVE else None

    async def topic_of(self, client: SimulatedClient, topic_id: UUID) -> TopicModel | None:
        for topic in self.living_topics():
            if await self.topic_id(client, topic) == topic_id:
                return topic
        return None

    def choose_topic(self, random: random.Random) -> TopicModel | None:
        alive = self.living_topics()
        return random.choice(alive) if alive else None

    def choose_partition(self, random: random.Random) -> tuple[TopicModel, int] | None:
        topic = self.choose_topic(random)
        return None if topic is None else (topic, random.randrange(len(topic.partitions)))

    def note(self, who: str, what: str, *details: object) -> None:
        """Record an operation of a client with its outcome."""
        self.operations += 1
        self.world.trace.record("op", who, what, *details)
