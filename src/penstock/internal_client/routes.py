"""Routes to the brokers of a cluster: leaders of partitions, coordinators of groups and transactional ids.

Metadata is kept until a caller finds it wrong (`forget`), and one Metadata request serves all callers that
ask at the same time. Errors are BrokerError with Kafka's code, and `Unreachable`. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import TypeVar

from penstock.config import Address
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import RESPONSE_SECONDS, ClientApi, check_error
from penstock.internal_client.connections import BrokerConnections, Request
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.retries import retry
from penstock.internal_client.topic_routes import TopicPages, TopicRoute, route_of
from penstock.model import BrokerId
from penstock.net.acting import own_context
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import Network
from penstock.unreachable import Unreachable, reason_of
from penstock.wire.object_call import SCHEDULE, WEBHOOK

T = TypeVar("T")

PATIENCE_SECONDS = 10.0
MAX_COORDINATORS = 10_000
MAX_AGE_SECONDS = 30.0
"""Age in seconds from which on metadata is read again in the background, because no error shows added partitions."""
_METADATA = ClientApi(3, 12)
_FIND_COORDINATOR = ClientApi(10, 4)
_DESCRIBE_TOPICS = ClientApi(75, 0)


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SCHEDULE = SCHEDULE
    WEBHOOK = WEBHOOK


@dataclass(frozen=True, slots=True)
class BrokerRoute:
    node_id: BrokerId
    address: Address
    rack: str | None


class Routes:
    def __init__(
        self,
        network: Network,
        bootstrap: Sequence[Address],
        client_id: str,
        shortcuts: Mapping[BrokerId, Address] | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        response_seconds: float = RESPONSE_SECONDS,
    ) -> None:
        """Create routes. Nothing is connected yet.

        `shortcuts` replace the addresses that brokers advertise. `patience_seconds` limits the retries of a
        request. After `response_seconds` without a response, a request for any broker is sent to the next
        one.
        """
        self.network = network
        self.client_id = client_id
        self.cluster_id = ""
        self.controller = BrokerId(-1)
        self.brokers: Mapping[BrokerId, BrokerRoute] = {}
        self._bootstrap = list(bootstrap)
        self._shortcuts = shortcuts or {}
        self._patience_seconds = patience_seconds
        self._response_seconds = response_seconds
        self._connections = BrokerConnections(network, client_id)
        self._topics: dict[str, TopicRoute] = {}
        self._read_at: dict[str, float] = {}
        self._reading: dict[str, asyncio.Task[Mapping[str, TopicRoute]]] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], BrokerId] = {}

    def close(self) -> None:
        for task in self._reading.values():
            task.cancel()
        self._connections.close()

    # --- topics and their leaders

    async def topic(self, name: str) -> TopicRoute:
        """Return the topic's partitions, known or read now. Raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        route = self._topics.get(name)
        if route is None:
            # This is the result of the read itself, because another caller may have forgotten the topic again
            # by now.
            route = (await asyncio.shield(self._read_one(name))).get(name)
        elif asyncio.get_running_loop().time() - self._read_at.get(name, 0.0) > MAX_AGE_SECONDS:
            self._read_one(name)
        if route is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name[:80]!r}")
        return route

    def _read_one(self, name: str) -> asyncio.Task[Mapping[str, TopicRoute]]:
        reading = self._reading.get(name)
        if reading is None:
            loop = asyncio.get_running_loop()
            reading = self._reading[name] = loop.create_task(self._read([name]), context=own_context())
            reading.add_done_callback(lambda done: self._on_read(name, done))
        return reading

    def _on_read(self, name: str, done: asyncio.Task[Mapping[str, TopicRoute]]) -> None:
        self._reading.pop(name, None)
        if not done.cancelled():
            # Callers that wait get the exception. A read in the background has no caller.
            done.exception()

    async def topics(self) -> Mapping[str, TopicRoute]:
        """Read and return every topic, page by page, so that no response, and no work on one, grows with the
        cluster.
        """
        began = asyncio.get_running_loop().time()
        await self.read_brokers()
        pages = TopicPages()
        while not pages.is_complete:
            request = partial(_DESCRIBE_TOPICS.call, fields=pages.next_request())
            pages.add(await self.at_any(request))
        newer = {name: route for name, route in self._topics.items() if self._read_at[name] > began}
        self._topics = pages.topics | newer
        self._read_at = dict.fromkeys(pages.topics, began) | {name: self._read_at[name] for name in newer}
        return pages.topics

    async def read_brokers(self) -> None:
        """Read the brokers of the cluster and its controller, without topics."""
        await self._read([])

    async def leader(self, topic: str, partition: int) -> BrokerConnection:
        """Return the shared connection to the partition's leader."""
        _, broker = await self.find_leader(topic, partition)
        return await self._connections.get(broker.address)

    async def open_to_leader(self, topic: str, partition: int) -> BrokerConnection:
        """Open a connection to the partition's leader for the caller alone, for requests that wait there."""
        _, broker = await self.find_leader(topic, partition)
        return await self._connections.open(broker.address)

    async def find_leader(self, topic: str, partition: int) -> tuple[TopicRoute, BrokerRoute]:
        """Return the topic and the partition's leader. Raises LEADER_NOT_AVAILABLE if it has none."""
        route = await self.topic(topic)
        if partition >= len(route.partitions):
            # Partitions may have been added since.
            self.forget(topic)
            route = await self.topic(topic)
        if not 0 <= partition < len(route.partitions):
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition,
                f"{topic} has {len(route.partitions)} partitions and none with number {partition}",
            )
        leader = self.brokers.get(route.partitions[partition].leader)
        if leader is None:
            raise BrokerError(ErrorCode.leader_not_available, f"{topic}-{partition} has no leader at present")
        return route, leader

    def known_leader(self, topic: str, partition: int) -> tuple[TopicRoute, BrokerRoute] | None:
        """Return the result of `find_leader` from recent metadata; None if metadata would have to be read."""
        route = self._topics.get(topic)
        if (
            route is None
            or not 0 <= partition < len(route.partitions)
            or asyncio.get_running_loop().time() - self._read_at.get(topic, 0.0) > MAX_AGE_SECONDS
        ):
            return None
        leader = self.brokers.get(route.partitions[partition].leader)
        return None if leader is None else (route, leader)

    def known_connection(self, topic: str, partition: int) -> BrokerConnection | None:
        """Return the open connection to the leader according to recent metadata; None if `leader` would have
        to wait.
        """
        known = self.known_leader(topic, partition)
        return None if known is None else self._connections.known(known[1].address)

    def forget(self, topic: str) -> None:
        """Drop the metadata of a topic after a response that contradicts it."""
        self._topics.pop(topic, None)
        self._read_at.pop(topic, None)

    async def _read(self, names: Sequence[str]) -> Mapping[str, TopicRoute]:
        topics = [{"topic_id": None, "name": name} for name in names]
        fields = {"topics": topics, "allow_auto_topic_creation": False}
        response = await self.at_any(lambda connection: _METADATA.call(connection, fields))
        self.cluster_id = response.cluster_id or ""
        self.controller = BrokerId(response.controller_id)
        self.brokers = {
            BrokerId(each.node_id): BrokerRoute(
                BrokerId(each.node_id),
                self._shortcuts.get(BrokerId(each.node_id), Address(each.host, each.port)),
                each.rack,
            )
            for each in response.brokers
        }
        found = {topic.name: route_of(topic) for topic in response.topics if topic.name and topic.partitions}
        self._topics |= found
        self._read_at |= dict.fromkeys(found, asyncio.get_running_loop().time())
        return found

    # --- coordinators

    async def _find_coordinator(self, kind: CoordinatorKind, key: str) -> BrokerRoute:
        found = self._coordinators.get((kind, key))
        if found is None or found not in self.brokers:
            fields = {"key_type": kind, "coordinator_keys": [key]}
            response = await self.at_any(lambda connection: _FIND_COORDINATOR.call(connection, fields))
            [result] = response.coordinators
            check_error(result.error_code, result.error_message)
            found = BrokerId(result.node_id)
            if len(self._coordinators) >= MAX_COORDINATORS:
                # Group ids come from clients, in any number.
                self._coordinators.clear()
            self._coordinators[kind, key] = found
            if found not in self.brokers:
                await self._read([])
        return self._broker(found)

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Drop a known coordinator after a response that contradicts it."""
        self._coordinators.pop((kind, key), None)

    # --- requests

    async def at_leader(
        self, topic: str, partition: int, request: Request[T], seconds: float | None = None
    ) -> T:
        """Send a request to the partition's leader, with retries. Only for requests that may be sent twice."""

        async def attempt() -> T:
            try:
                _, broker = await self.find_leader(topic, partition)
                return await self._connections.send(broker.address, request)
            except (BrokerError, OSError):
                self.forget(topic)
                raise

        return await retry(attempt, self._patience_seconds if seconds is None else seconds)

    async def at_coordinator(
        self, kind: CoordinatorKind, key: str, request: Request[T], seconds: float | None = None
    ) -> T:
        """Send a request to the coordinator, with retries. Only for requests that may be sent twice."""

        async def attempt() -> T:
            try:
                broker = await self._find_coordinator(kind, key)
                return await self._connections.send(broker.address, request)
            except (BrokerError, OSError):
                self.forget_coordinator(kind, key)
                raise

        return await retry(attempt, self._patience_seconds if seconds is None else seconds)

    async def at_any(self, request: Request[T]) -> T:
        """Send a request to any broker, and to the next one if it does not respond. Only for requests that
        may be sent twice.
        """
        problems: dict[Address, OSError] = {}
        for address in self._addresses():
            try:
                return await self._connections.send(address, request, self._response_seconds)
            except Unreachable as error:
                problem = error.problems[address]
                # Before any broker is known, the port may belong to another protocol.
                problems[address] = (
                    problem if self.brokers else await self._connections.explain(address, problem)
                )
        raise Unreachable(problems)

    async def at_broker(self, node_id: BrokerId, request: Request[T]) -> T:
        """Send a request to one broker."""
        return await self._connections.send(self._broker(node_id).address, request)

    async def at_all(self, request: Request[T]) -> list[T]:
        """Send a request to every broker, one after the other in the order of their ids."""
        await self.read_brokers()
        return [await self.at_broker(node_id, request) for node_id in sorted(self.brokers)]

    async def once(self, request: Request[T], node_id: BrokerId | None = None) -> T:
        """Send a request that must not be sent twice, to one broker or to any.

        Raises Unreachable if no broker can be connected to, OutcomeUnknown if the response is lost.
        """
        connection = await (self.any_broker() if node_id is None else self.broker(node_id))
        try:
            return await request(connection)
        except OSError as error:
            raise OutcomeUnknown(reason_of(error)) from error

    async def any_broker(self) -> BrokerConnection:
        """Return the connection to the first broker that can be reached."""
        problems: dict[Address, OSError] = {}
        for address in self._addresses():
            try:
                return await self._connections.get(address)
            except Unreachable as error:
                problems |= error.problems
        raise Unreachable(problems)

    async def broker(self, node_id: BrokerId) -> BrokerConnection:
        """Return the shared connection to a broker of the cluster."""
        return await self._connections.get(self._broker(node_id).address)

    def _broker(self, node_id: BrokerId) -> BrokerRoute:
        route = self.brokers.get(node_id)
        if route is None:
            raise BrokerError(
                ErrorCode.broker_not_available, f"broker {node_id} is not in the cluster at present"
            )
        return route

    def _addresses(self) -> Iterable[Address]:
        known = [route.address for route in self.brokers.values()]
        return dict.fromkeys((*self._connections.addresses, *known, *self._bootstrap))


async def read_topic(connection: BrokerConnection, name: str) -> TopicRoute | None:
    """Return a topic as one broker knows it; None if the broker does not know it."""
    fields = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": False}
    response = await _METADATA.call(connection, fields)
    return next((route_of(topic) for topic in response.topics if topic.partitions), None)
