"""The way to the right broker of a cluster: who leads what, as a client knows it, and a connection to each of them.

What is known is kept until somebody finds it wrong (`forget`), and read by one request for all who ask at the same
time. Errors are BrokerErrors with Kafka's code; `ConnectionLost` and other OSErrors where a broker does not answer.
Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from penstock.config import Address
from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.model import BrokerId, TopicId
from penstock.net.client import Client
from penstock.net.network import Network

T = TypeVar("T")

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 30.0
MAX_COORDINATORS = 10_000
MAX_AGE_SECONDS = 30.0
"""What is older is read again: partitions are added, and nobody finds anything wrong."""
RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 1.0
_METADATA, _METADATA_VERSION = 3, 12
_FIND_COORDINATOR, _FIND_COORDINATOR_VERSION = 10, 4

MOVED = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.kafka_storage_error,
        ErrorCode.replica_not_available,
        ErrorCode.broker_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
    }
)
"""Another broker may know better by now."""

RETRIABLE = MOVED | {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_enough_replicas,
    ErrorCode.request_timed_out,
    ErrorCode.offset_not_available,
    ErrorCode.concurrent_transactions,
}
"""Nothing was done, and a little later it may be."""


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class PartitionRoute:
    leader: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class TopicRoute:
    name: str
    id: TopicId
    is_internal: bool
    partitions: tuple[PartitionRoute, ...]


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
    ) -> None:
        """`shortcuts`: where brokers are reached otherwise than where they say."""
        self.cluster_id = ""
        self.controller = BrokerId(-1)
        self.brokers: Mapping[BrokerId, BrokerRoute] = {}
        self._network = network
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._shortcuts = shortcuts or {}
        self._clients: dict[Address, Client] = {}
        self._connecting: dict[Address, asyncio.Task[Client]] = {}
        self._topics: dict[str, TopicRoute] = {}
        self._read_at: dict[str, float] = {}
        self._reading: dict[str, asyncio.Task[Mapping[str, TopicRoute]]] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], BrokerId] = {}

    def close(self) -> None:
        for task in (*self._connecting.values(), *self._reading.values()):
            task.cancel()
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    # --- topics and their leaders

    async def topic(self, name: str) -> TopicRoute:
        """BrokerError where there is no such topic."""
        route = self._topics.get(name)
        if route is None:
            # Not what is known by now: that may be forgotten again already.
            route = (await asyncio.shield(self._read_one(name))).get(name)
        elif asyncio.get_running_loop().time() - self._read_at.get(name, 0.0) > MAX_AGE_SECONDS:
            self._read_one(name)
        if route is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name[:80]!r}")
        return route

    def _read_one(self, name: str) -> asyncio.Task[Mapping[str, TopicRoute]]:
        reading = self._reading.get(name)
        if reading is None:
            reading = self._reading[name] = asyncio.get_running_loop().create_task(self._read([name]))
            reading.add_done_callback(lambda done: self._on_read(name, done))
        return reading

    def _on_read(self, name: str, done: asyncio.Task[Mapping[str, TopicRoute]]) -> None:
        self._reading.pop(name, None)
        if not done.cancelled():
            # Who waits hears of it; nobody has to.
            done.exception()

    async def topics(self) -> Mapping[str, TopicRoute]:
        """Every topic there is, asked for anew."""
        return await self._read(None)

    async def leader(self, topic: str, partition: int) -> Client:
        """A connection to the broker that leads the partition."""
        _, broker = await self.find_leader(topic, partition)
        return await self._connect(broker.address)

    async def open_to_leader(self, topic: str, partition: int) -> Client:
        """A connection of the caller's own, for answers that wait: nobody else's have to wait behind them."""
        _, broker = await self.find_leader(topic, partition)
        async with asyncio.timeout(CONNECT_SECONDS):
            return await Client.connect(
                self._network, broker.address.host, broker.address.port, self._client_id
            )

    async def find_leader(self, topic: str, partition: int) -> tuple[TopicRoute, BrokerRoute]:
        """The topic, and the broker that leads the partition; BrokerError where there is none."""
        route = await self.topic(topic)
        if partition >= len(route.partitions):
            # Partitions may have been added since.
            self.forget(topic)
            route = await self.topic(topic)
        if not 0 <= partition < len(route.partitions):
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition, f"{topic} has {len(route.partitions)} partitions"
            )
        leader = self.brokers.get(route.partitions[partition].leader)
        if leader is None:
            raise BrokerError(ErrorCode.leader_not_available, f"nobody leads {topic}-{partition} at present")
        return route, leader

    def forget(self, topic: str) -> None:
        """What is known of it has turned out wrong."""
        self._topics.pop(topic, None)
        self._read_at.pop(topic, None)

    async def _read(self, names: Sequence[str] | None) -> Mapping[str, TopicRoute]:
        topics = None if names is None else [{"topic_id": None, "name": name} for name in names]
        fields = {"topics": topics, "allow_auto_topic_creation": False}
        response = await self.ask_any(_METADATA, _METADATA_VERSION, fields)
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
        found = {topic.name: _route_of(topic) for topic in response.topics if topic.name and topic.partitions}
        now = asyncio.get_running_loop().time()
        if names is None:
            self._topics, self._read_at = dict(found), {}
        else:
            self._topics |= found
        self._read_at |= dict.fromkeys(found, now)
        return found

    # --- coordinators

    async def coordinator(self, kind: CoordinatorKind, key: str) -> Client:
        """A connection to the broker that answers for a group or a transactional id."""
        found = self._coordinators.get((kind, key))
        if found is None or found not in self.brokers:
            fields = {"key_type": kind, "coordinator_keys": [key]}
            response = await self.ask_any(_FIND_COORDINATOR, _FIND_COORDINATOR_VERSION, fields)
            [answer] = response.coordinators
            check(answer.error_code, answer.error_message)
            found = BrokerId(answer.node_id)
            if len(self._coordinators) >= MAX_COORDINATORS:
                # The names of groups come from strangers.
                self._coordinators.clear()
            self._coordinators[kind, key] = found
            if found not in self.brokers:
                await self._read([])
        return await self.broker(found)

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    # --- asking

    async def at_leader(
        self, topic: str, partition: int, ask: Callable[[Client], Awaitable[T]], seconds: float
    ) -> T:
        """Ask the leader, whoever it is; only for what may be asked again. The last error when time is over."""

        async def attempt() -> T:
            try:
                return await ask(await self.leader(topic, partition))
            except (BrokerError, OSError):
                self.forget(topic)
                raise

        return await persist(attempt, seconds)

    async def at_coordinator(
        self, kind: CoordinatorKind, key: str, ask: Callable[[Client], Awaitable[T]], seconds: float
    ) -> T:
        """Ask the coordinator, whoever it is; only for what may be asked again. The last error when time is over."""

        async def attempt() -> T:
            try:
                return await ask(await self.coordinator(kind, key))
            except (BrokerError, OSError):
                self.forget_coordinator(kind, key)
                raise

        return await persist(attempt, seconds)

    async def ask_any(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """Ask a broker, and the next where one does not answer: only for what may be asked again."""
        problem: Exception = ConnectionRefusedError("no broker is known")
        for address in self._addresses():
            try:
                client = await self._connect(address)
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await client.request(api_key, version, fields)
            except OSError as error:
                problem = error
        raise problem

    async def any_broker(self) -> Client:
        """A connection to whoever is there."""
        problem: Exception = ConnectionRefusedError("no broker is known")
        for address in self._addresses():
            try:
                return await self._connect(address)
            except OSError as error:
                problem = error
        raise problem

    def _addresses(self) -> Iterable[Address]:
        known = [route.address for route in self.brokers.values()]
        return dict.fromkeys((*self._clients, *known, *self._bootstrap))

    async def broker(self, node_id: BrokerId) -> Client:
        """A connection to a broker of the cluster."""
        route = self.brokers.get(node_id)
        if route is None:
            raise BrokerError(ErrorCode.broker_not_available, f"broker {node_id} is not there")
        return await self._connect(route.address)

    async def _connect(self, address: Address) -> Client:
        client = self._clients.get(address)
        if client is not None and client.is_connected:
            return client
        connecting = self._connecting.get(address)
        if connecting is None:
            connecting = asyncio.get_running_loop().create_task(self._open(address))
            self._connecting[address] = connecting
            connecting.add_done_callback(lambda _: self._connecting.pop(address, None))
        return await asyncio.shield(connecting)

    async def _open(self, address: Address) -> Client:
        self._clients.pop(address, None)
        async with asyncio.timeout(CONNECT_SECONDS):
            client = await Client.connect(self._network, address.host, address.port, self._client_id)
        self._clients[address] = client
        return client


def check(code: int, message: str | None = None) -> None:
    """BrokerError for anything but 0."""
    if code:
        raise BrokerError(ErrorCode(code), message or "")


async def persist(attempt: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Ask again while that may help; only for what may be asked again. The last error when time is over."""
    deadline = asyncio.get_running_loop().time() + seconds
    pause = RETRY_SECONDS
    while True:
        try:
            return await attempt()
        except (BrokerError, OSError, ProtocolError) as error:
            is_final = isinstance(error, BrokerError) and error.code not in RETRIABLE
            if is_final or asyncio.get_running_loop().time() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, MAX_RETRY_SECONDS)


def _route_of(topic: Any) -> TopicRoute:
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return TopicRoute(
        topic.name,
        TopicId(topic.topic_id),
        bool(topic.is_internal),
        tuple(
            PartitionRoute(
                BrokerId(each.leader_id),
                each.leader_epoch,
                tuple(map(BrokerId, each.replica_nodes)),
                tuple(map(BrokerId, each.isr_nodes)),
            )
            for each in partitions
        ),
    )
