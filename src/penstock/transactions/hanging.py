"""Abort of hanging transactions: transactions that are open in a partition and unknown to every coordinator.

The partition leader asks every shard of `__transaction_state`. It aborts a transaction only if all shards
have responded, in the leader epochs that the store has now, and none has the partition in a transaction of
that producer. A partition is added to a transaction before its first record is written, so records of an
unknown transaction can never be committed, unless the producer has written since the check. The marker has
the producer and coordinator epochs of the log, so it fences no coordinator. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.cluster.internal_topics import TRANSACTIONS_TOPIC
from penstock.cluster.metadata import ClusterMetadata
from penstock.config import TRANSACTION_ABORT_INTERVAL_MS, TRANSACTION_MAX_TIMEOUT_MS
from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.broker_transactions import known_transactions
from penstock.model import BrokerId, LeaderEpoch, ProducerId, TopicPartition
from penstock.observability.logs import Logger
from penstock.records.control import Marker
from penstock.replication.replica import Replica
from penstock.replication.replica_manager import ReplicaManager
from penstock.storage.producer_state import ProducerEntry
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.links import BrokerLinks
from penstock.transactions.transaction import VERSION_1
from penstock.wire.known_transactions import KnownTransactions, OpenTransaction

MAX_TOGETHER = 1_000
COMMIT_WAIT_SECONDS = 1.0
_REPLICAS_PER_TURN = 500

WriteMarker = Callable[
    [Marker, int, Sequence[TopicPartition], float | None], Awaitable[Mapping[TopicPartition, ErrorCode]]
]
"""Function that writes a marker, in this version of the transaction protocol, to partitions that this broker
leads. The last argument is the maximum wait for the commit, in seconds.
"""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A transaction that is open in a partition, with the producer's state in the log at the time of the check."""

    replica: Replica
    producer_id: ProducerId
    entry: ProducerEntry

    @property
    def question(self) -> OpenTransaction:
        return OpenTransaction(self.producer_id, self.replica.name)

    @property
    def is_unchanged(self) -> bool:
        return self.replica.log.producers.get(self.producer_id) == self.entry


class HangingTransactions:
    def __init__(
        self,
        node_id: BrokerId,
        metadata: ClusterMetadata,
        replicas: ReplicaManager,
        coordinator: TransactionCoordinator,
        links: BrokerLinks,
        write_marker: WriteMarker,
        clock: Clock,
        logger: Logger,
    ) -> None:
        self.aborts = 0
        """Number of hanging transactions that were aborted, for metrics."""
        self._node_id = node_id
        self._metadata = metadata
        self._replicas = replicas
        self._coordinator = coordinator
        self._links = links
        self._write_marker = write_marker
        self._clock = clock
        self._logger = logger
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._links.close()

    def suspect(self, partition: TopicPartition, producer_id: ProducerId) -> Suspect:
        """Return the open transaction of a producer. BrokerError if the producer has none in the partition,
        or if another broker leads the partition.
        """
        replica = self._replicas.get(partition.topic, partition.partition)
        entry = replica.log.producers.get(producer_id)
        if entry is None or entry.transaction_start < 0:
            raise BrokerError(
                ErrorCode.invalid_txn_state, f"producer {producer_id} has no transaction open in {partition}"
            )
        return Suspect(replica, producer_id, entry)

    async def abort(self, suspects: Sequence[Suspect]) -> list[ErrorCode]:
        """Abort those transactions that no coordinator knows. The result of a transaction is
        INVALID_TXN_STATE if a coordinator knows it, COORDINATOR_NOT_AVAILABLE if not all coordinators
        responded, or the error of writing its marker.
        """
        try:
            known = await self._known([suspect.question for suspect in suspects])
        except (OSError, PenstockError, TimeoutError) as error:
            self._logger.error_rarely(
                "transaction coordinators could not be asked about open transactions", error
            )
            return [ErrorCode.coordinator_not_available] * len(suspects)
        return [
            ErrorCode.invalid_txn_state if place in known else await self._end(suspect)
            for place, suspect in enumerate(suspects)
        ]

    async def _end(self, suspect: Suspect) -> ErrorCode:
        if not suspect.is_unchanged:
            return ErrorCode.concurrent_transactions
        entry, partition = suspect.entry, suspect.replica.name
        self.aborts += 1
        self._logger.warning(
            "hanging transaction aborted",
            partition=partition,
            producer_id=suspect.producer_id,
            producer_epoch=entry.epoch,
            first_offset=entry.transaction_start,
        )
        marker = Marker(suspect.producer_id, entry.epoch, False, entry.coordinator_epoch)
        # No other code runs between the check of the entry and the append.
        written = await self._write_marker(marker, VERSION_1, [partition], COMMIT_WAIT_SECONDS)
        return written[partition]

    # --- asking

    async def _known(self, asked: Sequence[OpenTransaction]) -> set[int]:
        """Return the indexes of the transactions that a coordinator knows. Raises an error unless every
        coordinator responded.
        """
        await self._metadata.confirm()
        topic = self._metadata.image.topic(TRANSACTIONS_TOPIC)
        shards = {} if topic is None else dict(enumerate(topic.partitions))
        answers = await asyncio.gather(
            *(self._ask(leader, asked) for leader in sorted({state.leader for state in shards.values()}))
        )
        answered: dict[int, LeaderEpoch] = {}
        for answer in answers:
            answered.update(answer.shards)
        for index, state in shards.items():
            if answered.get(index) != state.leader_epoch:
                raise BrokerError(
                    ErrorCode.coordinator_not_available,
                    f"the coordinator of {TRANSACTIONS_TOPIC}-{index} has not responded",
                )
        return {place for answer in answers for place in answer.known}

    async def _ask(self, leader: BrokerId, asked: Sequence[OpenTransaction]) -> KnownTransactions:
        if leader == self._node_id:
            return await self._coordinator.known(asked)
        return await self._links.send(leader, lambda connection: known_transactions(connection, asked))

    # --- finding suspects

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._metadata.config[TRANSACTION_ABORT_INTERVAL_MS] / 1000)
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - a loop that dies would leave readers waiting for good
                self._logger.error_rarely("search for hanging transactions failed", error)

    async def _look(self) -> None:
        config = self._metadata.config
        silent_ms = config[TRANSACTION_MAX_TIMEOUT_MS] + config[TRANSACTION_ABORT_INTERVAL_MS]
        before_ms = self._clock.now_ms() - silent_ms
        suspects: list[Suspect] = []
        for place, replica in enumerate(self._replicas):
            if place % _REPLICAS_PER_TURN == 0:
                await asyncio.sleep(0)
            suspects += _silent(replica, before_ms)
        if suspects:
            # The other transactions are checked in the next round.
            await self.abort(suspects[:MAX_TOGETHER])


def _silent(replica: Replica, before_ms: int) -> Iterator[Suspect]:
    """Yield open transactions of the partition whose producers have not written since `before_ms`."""
    producers = replica.log.producers
    if replica.partition.is_leader and producers.unstable.first_open() is not None:
        for producer_id, entry in producers.copy().items():
            if entry.transaction_start >= 0 and entry.last_write_ms < before_ms:
                yield Suspect(replica, ProducerId(producer_id), entry)
