"""The base of casts: clients of one feature that some seeds of a cluster have, with their topics and their audit."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import BrokerError, ErrorCode
from simulation.clients.actor import Actor
from simulation.scenarios.stage import Stage


class Cast:
    def __init__(self, stage: Stage, name: str, share: float) -> None:
        """Draw from the stream `name` whether the seed has these clients; `share` is the share of seeds with them."""
        self._stage = stage
        self._random = stage.world.random(name)
        self.is_there = self._random.random() < share
        self._routing = stage.routing(name)
        self._actors: list[Actor] = []

    @property
    def actors(self) -> list[Actor]:
        return self._actors

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str], copies: int) -> None:
        """Create a topic unless it exists: an earlier attempt may have had an unknown outcome."""
        try:
            await (await self._routing.any_broker()).create_topic(name, partitions, dict(configs), copies)
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise
