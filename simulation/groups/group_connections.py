"""The connections of a group member in a cluster, used as one: to its coordinator, to leaders, to any broker.

The coordinator is the broker that FindCoordinator named last. `is_authoritative` says whether the last response came
from the recorded coordinator while it knew that it is one: a replaced coordinator may confirm what is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulation.clients.client import ANSWER_SECONDS, NoAnswer, SimulatedClient
from simulation.scenarios.stage import CLIENT_HOST, Stage

_NO_BROKER = -1


class GroupConnections(SimulatedClient):
    def __init__(self, stage: Stage, name: str, group: str) -> None:
        network = stage.world.network.host(CLIENT_HOST)
        super().__init__(name, network, ("", 0), stage.gate, stage.world.random(f"{name}/client"))
        self.coordinator = _NO_BROKER
        self._stage = stage
        self._group = group
        self._routing = stage.routing(name)

    async def connect(self) -> None:
        """Connections are made when they are needed."""
        await self._gate.wait()

    def disconnect(self) -> None:
        self._routing.disconnect()
        self.coordinator = _NO_BROKER

    async def ask(
        self,
        api: str,
        versions: tuple[int, ...],
        fields: Mapping[str, Any],
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        if api in ("Metadata", "FindCoordinator"):
            response = await (await self._routing.any_broker()).ask(api, versions, fields, seconds)
            if api == "FindCoordinator":
                found = response.coordinators[0] if hasattr(response, "coordinators") else response
                self.coordinator = _NO_BROKER if found.error_code else found.node_id
            return response
        if self.coordinator == _NO_BROKER:
            raise NoAnswer(f"the coordinator of {self._group} is not known")
        node_id = self.coordinator
        leads = self._stage.coordinates(node_id, self._group)
        client = await self._routing.broker(node_id)
        response = await client.ask(api, versions, fields, seconds)
        self.is_authoritative = leads and self._stage.coordinates(node_id, self._group)
        return response

    async def leader(self, topic: str, partition: int) -> tuple[SimulatedClient, int]:
        """Connect to the leader of a partition; return the connection and the leader epoch."""
        return await self._routing.leader(topic, partition)

    def mistrust(self, topic: str, partition: int) -> None:
        """Look up the leader again before the next request."""
        self._routing.mistrust(topic, partition)
