"""A client that changes partition counts: requests about the partitions that go, and an actor that makes them.

The actor reduces the counts of topics whose records other clients compare, and takes that back. It removes nothing, so
these clients lose nothing and read everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.inspection import ask_broker
from simulation.clients.client import NoAnswer
from simulation.clients.retries import retried
from simulation.clients.routing_client import RoutingClient
from simulation.models.history import InvariantViolated
from simulation.scenarios.stage import Stage

QUIET_MS = 300
"""`partition.drain.quiet.ms` of topics that shrink."""
_ATTEMPTS = 40
_PAUSE_SECONDS = 3.0


class CountRequests:
    def __init__(self, routing: RoutingClient) -> None:
        self._routing = routing

    async def change(self, topic: str, count: int, change: str, *, waits_for_groups: bool) -> list[str]:
        """Request another partition count; returns the phases of the partitions."""
        asked: dict[str, int | str] = {
            "count": count,
            "change": change,
            "waits_for_groups": int(waits_for_groups),
        }
        phases: list[str] = (await self.ask("set_partition_count", topic, asked))["phases"]
        return phases

    async def ask(
        self, question: str, topic: str, arguments: Mapping[str, int | str] | None = None
    ) -> dict[str, Any]:
        broker = await self._routing.any_broker()
        asked: dict[str, int | str] = {"topic": topic, **(arguments or {})}
        answer: dict[str, Any] = await broker.inspect(
            lambda connection: ask_broker(connection, question, asked)
        )
        return answer

    async def retried(
        self, question: str, topic: str, arguments: Mapping[str, int | str] | None = None
    ) -> Any:
        for _ in range(_ATTEMPTS):
            try:
                return await self.ask(question, topic, arguments)
            except BrokerError as error:
                if error.code is ErrorCode.invalid_partitions:
                    return None  # an attempt whose response was lost has done it
                await asyncio.sleep(0.25)
            except NoAnswer:
                await asyncio.sleep(0.25)
        raise InvariantViolated("liveness", f"{question} is not answered in peace")

    async def grow(self, topic: str, count: int) -> None:
        """Create removed partitions again."""
        await (await self._routing.any_broker()).create_partitions(topic, count)


class CountAdmin:
    def __init__(self, stage: Stage, name: str, topics: Mapping[str, int]) -> None:
        """`topics` has the full partition counts."""
        self.name = name
        self._stage = stage
        self._topics = topics
        self._random = stage.world.random(name)
        self._requests = CountRequests(stage.routing(name))

    async def step(self) -> None:
        """Reduce a partition count, or take that back, after a pause in which partitions may be sealed."""
        await asyncio.sleep(self._random.uniform(0.0, _PAUSE_SECONDS))
        topic, full = self._random.choice(list(self._topics.items()))
        change = self._random.choice(("set", "seal-now", "back"))
        if change == "back":
            await self._restore(topic, full)
            return
        count = self._random.randint(1, full - 1)
        phases = await self._requests.change(
            topic, count, change, waits_for_groups=self._random.random() < 0.5
        )
        self._stage.note(self.name, change, topic, count, *phases)

    async def _restore(self, topic: str, full: int) -> None:
        """Make all partitions active. Sealed ones without records are gone by now, and are created again."""
        phases = await self._requests.ask("partition_phases", topic)
        if len(phases["phases"]) < full:
            await self._requests.grow(topic, full)
        elif phases["active"] < full:
            await self._requests.change(topic, full, "set", waits_for_groups=True)
        self._stage.note(self.name, "back", topic, *phases["phases"])

    async def restore(self) -> None:
        """Make all partitions of all topics active, in peace."""
        for topic, full in self._topics.items():
            await retried(partial(self._until_full, topic, full), f"{topic} does not grow")

    async def _until_full(self, topic: str, full: int) -> None:
        await self._restore(topic, full)
        active = (await self._requests.ask("partition_phases", topic))["active"]
        if active < full:
            raise NoAnswer(f"{topic} has {active} active partitions")
