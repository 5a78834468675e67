"""The connections of a group member in a cluster, used as if they were one: to its coordinator, to leaders,
to anybody.

The coordinator is the broker that FindCoordinator named last. `is_authoritative` says whether the last
answer came from the recorded coordinator, which knows that it is: a replaced broker that has not heard of
it may confirm what is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import BrokerError
from penstock.simulation.client import (
    ANSWER_SECONDS,
    READ_UNCOMMITTED,
    NoAnswer,
    SimulatedClient,
    TimestampOffset,
)
from penstock.simulation.cluster_stage import ClusterStage
from penstock.simulation.stage import CLIENT_HOST
from penstock.wire.fetch import FetchResult

_METADATA, _FIND_COORDINATOR = 3, 10
_NOBODY = -1


class GroupConnections(SimulatedClient):
    def __init__(self, stage: ClusterStage, name: str, group: str) -> None:
        network = stage.world.network.host(CLIENT_HOST)
        super().__init__(name, network, ("", 0), stage.gate, stage.world.random(f"{name}/client"))
        self.coordinator = _NOBODY
        self._stage = stage
        self._group = group
        self._routing = stage.routing(name)

    async def connect(self) -> None:
        """Connections are made when they are needed."""
        await self._gate.wait()

    def disconnect(self) -> None:
        self._routing.disconnect()
        self.coordinator = _NOBODY

    async def ask(
        self,
        api_key: int,
        versions: tuple[int, ...],
        fields: Mapping[str, Any],
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        if api_key in (_METADATA, _FIND_COORDINATOR):
            response = await (await self._routing.anybody()).ask(api_key, versions, fields, seconds)
            if api_key == _FIND_COORDINATOR:
                found = response.coordinators[0] if hasattr(response, "coordinators") else response
                self.coordinator = _NOBODY if found.error_code else found.node_id
            return response
        if self.coordinator == _NOBODY:
            raise NoAnswer(f"nobody coordinates {self._group}")
        node_id = self.coordinator
        leads = self._stage.coordinates(node_id, self._group)
        client = await self._routing.broker(node_id)
        response = await client.ask(api_key, versions, fields, seconds)
        self.is_authoritative = leads and self._stage.coordinates(node_id, self._group)
        return response

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
        leader_epoch: int = -1,
        isolation_level: int = READ_UNCOMMITTED,
        **options: Any,
    ) -> FetchResult:
        try:
            leader, epoch = await self._routing.leader(topic, partition)
            return await leader.fetch(
                topic, partition, offset, max_bytes=max_bytes, max_wait_ms=max_wait_ms, leader_epoch=epoch
            )
        except (BrokerError, NoAnswer):
            self._routing.mistrust(topic, partition)
            raise

    async def list_offset(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        leader_epoch: int = -1,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> TimestampOffset:
        try:
            leader, epoch = await self._routing.leader(topic, partition)
            return await leader.list_offset(topic, partition, timestamp, epoch)
        except (BrokerError, NoAnswer):
            self._routing.mistrust(topic, partition)
            raise
