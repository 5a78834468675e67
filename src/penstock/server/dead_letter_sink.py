"""The dead-letter topics of the cluster, as share-partitions write them: on this broker, or at their leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.clock import Clock
from penstock.cluster.internal_topics import is_internal
from penstock.cluster.metadata import ClusterMetadata
from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.api import RESPONSE_SECONDS
from penstock.model import BrokerId
from penstock.net.broker_connection import BrokerConnection
from penstock.queues.dead_letters import Origin
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.replication.replica_manager import ReplicaManager
from penstock.server.producer_ids import ProducerIds
from penstock.transactions.links import BrokerLinks
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request

_PRODUCE_VERSION = 12
_ACKS_ALL = -1
_TIMEOUT_MS = 10_000


class DeadLetterTopics:
    """Each batch is written once: a partition recognises a repeated sequence of a producer."""

    def __init__(
        self,
        node_id: BrokerId,
        metadata: ClusterMetadata,
        replicas: ReplicaManager,
        clock: Clock,
        links: BrokerLinks,
        producer_ids: Callable[[], ProducerIds],
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._replicas = replicas
        self._clock = clock
        self._links = links
        self._producer_ids = producer_ids

    async def producer_id(self) -> int:
        return await self._producer_ids().next()

    async def write(
        self, topic: str, source: Origin, records: list[NewRecord], producer_id: int, sequence: int
    ) -> None:
        known = self._metadata.image.topic(topic)
        if is_internal(topic) or topic == source.topic:
            raise BrokerError(
                ErrorCode.invalid_topic_exception,
                f"{topic} cannot be the dead-letter topic of group {source.group}: it is internal, or its own topic",
            )
        if known is None or not known.partitions:
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition,
                f"the dead-letter topic {topic} of group {source.group} does not exist; create it",
            )
        partition = source.partition % len(known.partitions)
        batch = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        leader = known.partitions[partition].leader
        if leader == self._node_id:
            await self._append(topic, partition, batch)
        elif leader < 0:
            raise BrokerError(ErrorCode.leader_not_available, f"{topic}-{partition} has no leader")
        else:
            refusal = await self._links.send(leader, lambda link: _produce(link, topic, partition, batch))
            if refusal is not None:
                raise refusal

    async def _append(self, topic: str, partition: int, batch: bytearray) -> None:
        replica = self._replicas.get(topic, partition)
        if replica.refuses_acks_all:
            raise BrokerError(ErrorCode.not_enough_replicas, f"{replica.name} is under min ISR")
        if len(batch) > replica.log.config.max_message_bytes:
            raise BrokerError(ErrorCode.message_too_large, f"a batch of {len(batch)} bytes for {topic}")
        view = memoryview(batch)
        info = replica.append_as_leader(view, read_header(view), self._clock.now_ms())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_committed(error: BrokerError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        if not replica.when_acknowledged(info, _ACKS_ALL, on_committed):
            await done


async def _produce(
    link: BrokerConnection, topic: str, partition: int, batch: bytearray
) -> BrokerError | None:
    """Produce a batch; returns the refusal of the leader, which leaves the connection open."""
    content = ProducePartition(partition, memoryview(batch))
    request = ProduceRequest(None, _ACKS_ALL, _TIMEOUT_MS, [ProduceTopic(topic, None, [content])])
    correlation_id = link.next_correlation_id()
    frame = encode_produce_request(correlation_id, _PRODUCE_VERSION, link.client_id, request)
    async with asyncio.timeout(RESPONSE_SECONDS):
        response = decode_produce_response(await link.exchange(correlation_id, frame), _PRODUCE_VERSION)
    if not response.topics or not response.topics[0].partitions:
        raise PenstockError("the response to a dead letter has no result")
    result = response.topics[0].partitions[0]
    if not result.error_code:
        return None
    return BrokerError(ErrorCode(result.error_code), result.error_message or "")
