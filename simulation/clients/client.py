"""A simulated client of one broker: one connection, made again when it was lost, with pipelined requests.

A response is a plain value and a refusal a BrokerError; `NoAnswer` means that the outcome of the request
is unknown. Versions are drawn from the seed, so that all encodings are used.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.model import TopicId
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import Network
from penstock.wire.apis import FLEXIBLE_FROM, api_name
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchResult, FetchTopic
from penstock.wire.fetch_client import decode_fetch_response, encode_fetch_request
from penstock.wire.init_producer_id import InitProducerIdRequest, encode_init_producer_id
from penstock.wire.messages import decode_response_frame
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceResult, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request

T = TypeVar("T")

ANSWER_SECONDS = 6.0
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_BROKER_TIMEOUT = timedelta(seconds=3)
_PRODUCE_VERSIONS = (3, 5, 7, 8, 9, 11, 12)
PRODUCE_TIMEOUT_MS = 2_000
_FIRST_ZSTD_VERSION = 7
_FETCH_VERSIONS = (4, 5, 7, 9, 11, 12)
_FIRST_EPOCH_VERSION = 9
_FIRST_RACK_VERSION = 11
_TOPIC_ID_VERSION = 13
_KEYS = {api_name(key): key for key in FLEXIBLE_FROM}
_TOPIC_RESOURCE = 2
_SET = 0


class NoAnswer(Exception):
    """The outcome of the request is unknown: it may or may not have been carried out."""


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    timestamp: int
    offset: int


class SimulatedClient:
    def __init__(
        self,
        name: str,
        network: Network,
        address: tuple[str, int],
        gate: asyncio.Event,
        random: random.Random,
    ) -> None:
        """Make a client that connects only while the gate is open."""
        self.name = name
        self.connections = 0
        """The number of connections made so far, and thereby the number of the present one."""
        self.is_authoritative = True
        """Whether the last response came from a broker whose word counts: see `GroupConnections`."""
        self._network = network
        self._host, self._port = address
        self._gate = gate
        self._random = random
        self._client: BrokerConnection | None = None

    @property
    def is_connected(self) -> bool:
        return self._client is not None and self._client.is_connected

    async def connect(self) -> None:
        """Connect, unless there is a connection."""
        await self._gate.wait()
        if not self.is_connected:
            self.connections += 1
            connecting = BrokerConnection.connect(self._network, self._host, self._port, self.name)
            self._client = await self._within_time(connecting)

    def disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- records

    def produce(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        acks: int,
        *,
        zstd: bool,
        transactional_id: str | None = None,
        versions: tuple[int, ...] = _PRODUCE_VERSIONS,
        topic_id: UUID | None = None,
    ) -> SentBatch:
        """Send a batch behind those that were sent before; call `connect` first. `topic_id` names the topic,
        where it is given.
        """
        version = self._random.choice([v for v in versions if v >= _FIRST_ZSTD_VERSION or not zstd])
        contents = [ProducePartition(partition, memoryview(batch))]
        parts = [ProduceTopic(topic, None, contents)]
        if topic_id is not None:
            version, parts = _TOPIC_ID_VERSION, [ProduceTopic(None, TopicId(topic_id), contents)]
        client = self._connected()
        correlation_id = client.next_correlation_id()
        frame = encode_produce_request(
            correlation_id,
            version,
            self.name,
            ProduceRequest(transactional_id, acks, PRODUCE_TIMEOUT_MS, parts),
        )
        if acks == 0:
            client.send(frame)
            return SentBatch(self, version, None)
        return SentBatch(self, version, client.exchange(correlation_id, frame))

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
        rack: str = "",
        topic_id: UUID | None = None,
    ) -> FetchResult:
        """Fetch from an offset. `leader_epoch` is the epoch that the client knows, `rack` its rack.
        `topic_id` names the topic, where it is given.
        """
        await self.connect()
        first = max(_FIRST_EPOCH_VERSION if leader_epoch >= 0 else 0, _FIRST_RACK_VERSION if rack else 0)
        versions = [v for v in _FETCH_VERSIONS if v >= first] if topic_id is None else [_TOPIC_ID_VERSION]
        version = self._random.choice(versions)
        asked = FetchPartition(partition, offset, max_bytes, current_leader_epoch=leader_epoch)
        wanted = FetchTopic(topic, None, [asked])
        if topic_id is not None:
            wanted = FetchTopic(None, TopicId(topic_id), [asked])
        request = FetchRequest(
            max_wait_ms, 1, [wanted], [], max_bytes=max_bytes, isolation_level=isolation_level, rack_id=rack
        )
        client = self._connected()
        correlation_id = client.next_correlation_id()
        frame = encode_fetch_request(correlation_id, version, self.name, request)
        answer = await self._within_time(client.exchange(correlation_id, frame))
        response = decode_fetch_response(answer, version)
        check_error(response.error_code)
        result = response.topics[0].partitions[0]
        check_error(result.error_code)
        return result

    async def list_offset(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        leader_epoch: int = -1,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> TimestampOffset:
        """Return the offset of a timestamp, or the latest (-1) or earliest (-2) offset."""
        asked = {
            "partition_index": partition,
            "timestamp": timestamp,
            "current_leader_epoch": leader_epoch,
        }
        fields = {
            "replica_id": -1,
            "isolation_level": isolation_level,
            "topics": [{"name": topic, "partitions": [asked]}],
        }
        versions = (1, 2, 3, 5, 6, 7) if leader_epoch < 0 else (5, 6, 7)
        response = await self.ask("ListOffsets", versions, fields)
        found = response.topics[0].partitions[0]
        check_error(found.error_code)
        return TimestampOffset(_milliseconds(found.timestamp), found.offset)

    async def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete the records before an offset; return the log start offset."""
        asked = {"partition_index": partition, "offset": before}
        fields = {"topics": [{"name": topic, "partitions": [asked]}], "timeout": _BROKER_TIMEOUT}
        response = await self.ask("DeleteRecords", (0, 1, 2), fields)
        result = response.topics[0].partitions[0]
        check_error(result.error_code)
        return int(result.low_watermark)

    async def init_producer_id(self, before: tuple[int, int] = (-1, -1)) -> tuple[int, int]:
        """Return a producer id and epoch; `before` are those of a producer that asks for a new epoch."""
        fields = {
            "transactional_id": None,
            "transaction_timeout": _BROKER_TIMEOUT,
            "producer_id": before[0],
            "producer_epoch": before[1],
        }
        versions = (0, 1, 2, 3, 4) if before[0] < 0 else (3, 4)
        response = await self.ask("InitProducerId", versions, fields)
        check_error(response.error_code)
        return response.producer_id, response.producer_epoch

    async def init_transactions(
        self,
        transactional_id: str,
        timeout_ms: int,
        before: tuple[int, int],
        *,
        is_held: bool,
        seconds: float = ANSWER_SECONDS,
    ) -> tuple[int, int]:
        """Return a producer id and epoch; `before` are the last ones that this producer had, or -1 both."""
        await self.connect()
        version = self._random.choice((0, 1, 2, 3, 4, 5) if before[0] < 0 and not is_held else (3, 4, 5))
        client = self._connected()
        correlation_id = client.next_correlation_id()
        asked = InitProducerIdRequest(transactional_id, timeout_ms, *before, is_held)
        frame = encode_init_producer_id(version, correlation_id, self.name, asked)
        answer = await self._within_time(client.exchange(correlation_id, frame), seconds)
        response = decode_response_frame(_KEYS["InitProducerId"], version, answer)
        check_error(response.error_code)
        return response.producer_id, response.producer_epoch

    # --- topics

    async def inspect(self, question: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        """Ask the broker a question of the Inspect API."""
        await self.connect()
        return await self._within_time(question(self._connected()))

    async def topics(self) -> dict[str, int]:
        """Return the partition count of every topic."""
        response = await self.ask("Metadata", (4, 8, 9, 12), {"topics": None})
        return {topic.name: len(topic.partitions) for topic in response.topics if not topic.error_code}

    async def leaders(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return leader and leader epoch of every partition, as this broker knows them; -1 where there is no
        leader.
        """
        response = await self.ask("Metadata", (7, 8, 9, 12), {"topics": None})
        return {
            (topic.name, partition.partition_index): (partition.leader_id, partition.leader_epoch)
            for topic in response.topics
            for partition in topic.partitions
        }

    async def topic_ids(self) -> dict[str, UUID]:
        response = await self.ask("Metadata", (10, 12, 13), {"topics": None})
        return {topic.name: topic.topic_id for topic in response.topics if not topic.error_code}

    async def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str], replication_factor: int = 1
    ) -> None:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        fields = {"topics": [topic], "timeout": _BROKER_TIMEOUT, "validate_only": False}
        response = await self.ask("CreateTopics", (2, 4, 5, 7), fields)
        check_error(response.topics[0].error_code)

    async def delete_topic(self, name: str) -> None:
        fields = {
            "topics": [{"name": name, "topic_id": None}],
            "topic_names": [name],
            "timeout": _BROKER_TIMEOUT,
        }
        response = await self.ask("DeleteTopics", (1, 4, 5, 6), fields)
        check_error(response.responses[0].error_code)

    async def create_partitions(self, name: str, count: int) -> None:
        """Add partitions to a topic, up to this count."""
        topic = {"name": name, "count": count, "assignments": None}
        fields = {"topics": [topic], "timeout": _BROKER_TIMEOUT, "validate_only": False}
        response = await self.ask("CreatePartitions", (0, 1, 2, 3), fields)
        check_error(response.results[0].error_code)

    async def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Reassign a partition to these brokers; None cancels its reassignment."""
        asked = {"partition_index": partition, "replicas": None if replicas is None else list(replicas)}
        fields = {"topics": [{"name": topic, "partitions": [asked]}], "timeout": _BROKER_TIMEOUT}
        response = await self.ask("AlterPartitionReassignments", (0,), fields)
        check_error(response.error_code)
        check_error(response.responses[0].partitions[0].error_code)

    async def set_topic_config(self, topic: str, name: str, value: str) -> None:
        resource = {
            "resource_type": _TOPIC_RESOURCE,
            "resource_name": topic,
            "configs": [{"name": name, "config_operation": _SET, "value": value}],
        }
        response = await self.ask(
            "IncrementalAlterConfigs", (0, 1), {"resources": [resource], "validate_only": False}
        )
        check_error(response.responses[0].error_code)

    # --- the connection

    async def ask(
        self,
        api: str,
        versions: tuple[int, ...],
        fields: Mapping[str, Any],
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        """Send a request of an API, by its name, in one of the versions; return the response, whatever error it
        has.
        """
        await self.connect()
        version = self._random.choice(versions)
        return await self._within_time(self._connected().request(_KEYS[api], version, fields), seconds)

    def _connected(self) -> BrokerConnection:
        if self._client is None:
            raise NoAnswer("there is no connection")
        return self._client

    async def _within_time(self, answer: Awaitable[T], seconds: float = ANSWER_SECONDS) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except (OSError, ProtocolError) as error:  # TimeoutError is an OSError
            self.disconnect()
            raise NoAnswer(str(error)) from error

    async def wait_for_answer(self, answer: asyncio.Future[memoryview]) -> memoryview:
        return await self._within_time(answer)


class SentBatch:
    """A Produce request that was sent, and its response to come."""

    def __init__(
        self, client: SimulatedClient, version: int, answer: asyncio.Future[memoryview] | None
    ) -> None:
        self._client = client
        self._version = version
        self._answer = answer

    async def result(self) -> ProduceResult | None:
        """Wait for the response; None with acks=0, which has none."""
        if self._answer is None:
            return None
        frame = await self._client.wait_for_answer(self._answer)
        result = decode_produce_response(frame, self._version).topics[0].partitions[0]
        check_error(result.error_code)
        return result


def check_error(error_code: int) -> None:
    if error_code:
        raise BrokerError(ErrorCode(error_code))


def _milliseconds(timestamp: Any) -> int:
    """Convert a timestamp of a decoded message, which is a datetime or None for -1."""
    if timestamp is None:
        return -1
    return timestamp if isinstance(timestamp, int) else round(timestamp.timestamp() * 1000)
