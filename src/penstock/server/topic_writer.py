"""Writer of batches to topics of the cluster: it appends directly to partitions that this broker leads, and sends other
batches to their leader.

Each batch has a producer id and a sequence, and a partition recognises a repeated sequence. So a batch whose outcome is
unknown can be written again and is stored once. Loop thread only.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from penstock.cluster.image import TopicImage
from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.api import RESPONSE_SECONDS
from penstock.internal_client.inspection import ask_broker
from penstock.model import BrokerId
from penstock.net.broker_connection import BrokerConnection
from penstock.replication.held_appends import AppendCallback
from penstock.replication.replica import Replica
from penstock.replication.waiting import settled_by
from penstock.server.producer_ids import ProducerIds
from penstock.state_log.shards import CoordinatorContext
from penstock.storage.log import AppendInfo
from penstock.transactions.links import BrokerLinks
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request

_PRODUCE_VERSION: Final = 13
_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 10_000
FIND_BATCH: Final = "find_batch"
"""Name of the question of the Inspect API that searches for a batch (`inspection/find_batch.py`)."""


class WantedBatch(NamedTuple):
    """Batch to search for in a partition, from an offset on."""

    producer_id: int
    sequence: int
    from_offset: int


class TopicWriter:
    def __init__(self, context: CoordinatorContext, links: BrokerLinks, producer_ids: ProducerIds) -> None:
        self.metadata = context.metadata
        self._replicas = context.replicas
        self._node_id = context.node_id
        self._clock = context.clock
        self._links = links
        self._producer_ids = producer_ids

    async def producer_id(self) -> int:
        return await self._producer_ids.next()

    async def write(self, topic: TopicImage, partition: int, batch: bytearray) -> None:
        """Write a batch; returns when it is committed. Raises BrokerError if the leader refused it; after other errors
        the outcome is unknown.
        """
        leader = _leader_of(topic, partition)
        if leader == self._node_id:
            async with asyncio.timeout(_TIMEOUT_MS / 1000):
                await self._append(self.replica_of(topic, partition), batch)
            return
        refusal = await self._links.send(leader, lambda link: _produce(link, topic, partition, batch))
        if refusal is not None:
            raise refusal

    async def ask_leader(self, topic: TopicImage, partition: int, question: str, **arguments: Any) -> Any:
        """Ask the leader of a partition, on another broker, a question of the Inspect API."""
        named = {"topic": topic.name, "topic_id": str(topic.id), "partition": partition, **arguments}

        async def ask(link: BrokerConnection) -> Any:
            try:
                return await ask_broker(link, question, named)
            except BrokerError as error:
                return error  # a refusal; the connection stays open

        answer = await self._links.send(_leader_of(topic, partition), ask)
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    def leads(self, topic: TopicImage, partition: int) -> bool:
        return _leader_of(topic, partition) == self._node_id

    def replica_of(self, topic: TopicImage, partition: int) -> Replica:
        """Replica that this broker leads. Raises BrokerError if another broker leads it, or if the topic was deleted
        and created again.
        """
        replica = self._replicas.get(topic.name, partition)
        if replica.topic_id != topic.id:
            raise BrokerError(ErrorCode.unknown_topic_id, f"topic {topic.name} was deleted and created again")
        return replica

    async def _append(self, replica: Replica, batch: bytearray) -> None:
        held, on_held = _held_append()
        info = replica.append(memoryview(batch), self._clock.now_ms(), on_held, _ACKS_ALL)
        if info is None:
            info = await held
        done, settle = settled_by()
        if not replica.when_acknowledged(info, _ACKS_ALL, settle):
            await done


def _held_append() -> tuple[asyncio.Future[AppendInfo], AppendCallback]:
    """Return a future for the outcome of a held batch, and the callback that settles it."""
    done: asyncio.Future[AppendInfo] = asyncio.get_running_loop().create_future()

    def settle(outcome: AppendInfo | BrokerError) -> None:
        if done.done():
            return
        if isinstance(outcome, BrokerError):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)

    return done, settle


def _leader_of(topic: TopicImage, partition: int) -> BrokerId:
    if not 0 <= partition < len(topic.partitions):
        raise BrokerError(
            ErrorCode.unknown_topic_or_partition, f"{topic.name} has no partition {partition} any more"
        )
    leader = topic.partitions[partition].leader
    if leader < 0:
        raise BrokerError(ErrorCode.leader_not_available, f"{topic.name}-{partition} has no leader")
    return leader


async def _produce(
    link: BrokerConnection, topic: TopicImage, partition: int, batch: bytearray
) -> BrokerError | None:
    """Send a batch to its leader. A refusal is returned, not raised, so that the connection stays open."""
    content = ProducePartition(partition, memoryview(batch))
    topics = [ProduceTopic(None, topic.id, [content])]
    request = ProduceRequest(None, _ACKS_ALL, _TIMEOUT_MS, topics)
    correlation_id = link.next_correlation_id()
    frame = encode_produce_request(correlation_id, _PRODUCE_VERSION, link.client_id, request)
    async with asyncio.timeout(RESPONSE_SECONDS):
        response = decode_produce_response(await link.exchange(correlation_id, frame), _PRODUCE_VERSION)
    if not response.topics or not response.topics[0].partitions:
        raise PenstockError(f"the response to a batch for {topic.name} has no result")
    result = response.topics[0].partitions[0]
    if not result.error_code:
        return None
    return BrokerError(ErrorCode(result.error_code), result.error_message or "")
