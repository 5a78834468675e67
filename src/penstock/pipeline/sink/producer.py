"""Idempotent producer of a sink task: writes record batches once, and in order for each partition.

If a batch is rejected or times out, the task fails. The transaction, or the next attempt of the task, then decides
whether the rows count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import BrokerError, PenstockError
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.produce_loop import PartitionProducer, batches_of
from penstock.internal_client.routes import Routes
from penstock.internal_client.transactions import ProducerIdentity, init_producer_id
from penstock.records.building import NewRecord
from penstock.records.compression import Codec

RETRY_SECONDS = 120.0
MAX_BATCH_RECORDS = 5_000


class NotWritten(PenstockError):
    """A broker rejected the rows, or no broker stored them in time."""


class RecordPosition(NamedTuple):
    """Position of a written record."""

    topic: str
    topic_id: str
    partition: int
    offset: int


async def new_producer(routes: Routes) -> ProducerIdentity:
    """Allocate a producer id without a transactional id."""
    return await routes.at_any(lambda connection: init_producer_id(connection, None))


class BatchProducer:
    def __init__(self, routes: Routes, identity: ProducerIdentity, codec: Codec = Codec.NONE) -> None:
        self.identity = identity
        self._routes = routes
        self._codec = codec
        self._producers: dict[tuple[str, int], PartitionProducer] = {}

    async def write(self, topic: str, partition: int, records: Sequence[NewRecord]) -> int:
        """Write records; return the base offset of the last batch once all batches are acknowledged by all in-sync
        replicas.

        Calls for the same partition must not overlap.
        """
        producer = self._producers.get((topic, partition))
        if producer is None:
            producer = self._producers[topic, partition] = PartitionProducer(
                self._routes, topic, partition, self.identity, self._codec, waits_for_space=True
            )
        offset = -1
        for batch in batches_of(records, MAX_BATCH_RECORDS):
            deadline = asyncio.get_running_loop().time() + RETRY_SECONDS
            try:
                offset = await producer.write(batch, deadline)
            except (BrokerError, OSError, OutcomeUnknown) as error:
                problem = error.code.name if isinstance(error, BrokerError) else "no response"
                raise NotWritten(
                    f"cannot write to {topic}-{partition}: {problem} {error}".rstrip()
                ) from error
        return offset
