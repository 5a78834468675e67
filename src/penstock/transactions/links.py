"""Connections between brokers for coordinators and partition leaders.

Each broker has one authenticated connection, which is opened at the first request and closed at the first
error, so that no request is sent on it twice. Loop thread only.
"""

from __future__ import annotations

import asyncio
from random import Random  # noqa: TID251 - the type; the numbers come from the environment
from typing import TypeVar

from penstock.cluster.metadata import ClusterMetadata
from penstock.config import REPLICA_SOCKET_TIMEOUT_MS
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.connections import Request
from penstock.model import BrokerEpoch, BrokerId
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import Network
from penstock.replication.authentication import prove
from penstock.replication.replica_manager import ReplicaManager

T = TypeVar("T")


class BrokerLinks:
    def __init__(
        self,
        node_id: BrokerId,
        metadata: ClusterMetadata,
        replicas: ReplicaManager,
        network: Network,
        random: Random,
    ) -> None:
        """The cluster secret is read from `replicas`."""
        self._node_id = node_id
        self._metadata = metadata
        self._replicas = replicas
        self._network = network
        self._random = random
        self._links: dict[BrokerId, tuple[BrokerEpoch, asyncio.Task[BrokerConnection]]] = {}

    async def send(self, broker_id: BrokerId, request: Request[T]) -> T:
        """Send a request on the connection to a broker and return the result.

        Raises OSError, TimeoutError or PenstockError if there is no response. The broker may have served the
        request even so.
        """
        timeout_seconds = self._metadata.config[REPLICA_SOCKET_TIMEOUT_MS] / 1000
        connecting = self._link(broker_id)
        async with asyncio.timeout(timeout_seconds):
            client = await self._connected(broker_id, connecting)
            try:
                return await request(client)
            except BaseException:
                self._drop(broker_id, connecting)
                raise

    async def _connected(
        self, broker_id: BrokerId, connecting: asyncio.Task[BrokerConnection]
    ) -> BrokerConnection:
        """Wait for a connection. If this request gives up, other requests go on waiting for the connection."""
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if connecting.cancelled() and task is not None and not task.cancelling():
                # The connection was cancelled, not this request: the broker has registered again.
                raise ConnectionAbortedError(
                    f"the connection to broker {broker_id} was closed because the broker has registered again"
                ) from None
            raise
        except BaseException:
            self._drop(broker_id, connecting)
            raise

    def close(self) -> None:
        for broker_id, (_, connecting) in tuple(self._links.items()):
            self._drop(broker_id, connecting)

    def _link(self, broker_id: BrokerId) -> asyncio.Task[BrokerConnection]:
        broker = self._metadata.image.brokers.get(broker_id)
        if broker is None:
            raise BrokerError(ErrorCode.broker_not_available, f"broker {broker_id} is not registered")
        known = self._links.get(broker_id)
        if known is not None:
            epoch, connecting = known
            if epoch == broker.epoch and not _is_lost(connecting):
                return connecting
            self._drop(broker_id, connecting)
        connecting = asyncio.get_running_loop().create_task(
            self._connect(broker_id, broker.host, broker.port)
        )
        self._links[broker_id] = (broker.epoch, connecting)
        return connecting

    async def _connect(self, broker_id: BrokerId, host: str, port: int) -> BrokerConnection:
        async with asyncio.timeout(self._metadata.config[REPLICA_SOCKET_TIMEOUT_MS] / 1000):
            client = await BrokerConnection.connect(
                self._network, host, port, f"penstock-broker-{self._node_id}"
            )
            try:
                await prove(client, self._replicas.secret, self._node_id, broker_id, self._random)
            except BaseException:
                client.close()
                raise
        return client

    def _drop(self, broker_id: BrokerId, connecting: asyncio.Task[BrokerConnection]) -> None:
        known = self._links.get(broker_id)
        if known is not None and known[1] is connecting:
            del self._links[broker_id]
        connecting.cancel()
        connecting.add_done_callback(_close)


def _is_lost(connecting: asyncio.Task[BrokerConnection]) -> bool:
    if not connecting.done():
        return False
    return (
        connecting.cancelled() or connecting.exception() is not None or not connecting.result().is_connected
    )


def _close(connecting: asyncio.Task[BrokerConnection]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()
