"""Verification by a partition leader, before the first batch of a transaction, that the partition is in the
transaction.

With a client of version 2, the leader adds the partition (`is_implicit`). A client of version 1 has added it
before, and the leader verifies that (KIP-890). So no record is written in a partition that would get no
marker. A coordinator on this broker is called directly; other coordinators get requests in batches. Loop
thread only.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.cluster.image import NO_LEADER
from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.broker_transactions import PartitionsToAdd, add_partitions_to_txn
from penstock.model import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from penstock.observability.logs import Logger
from penstock.transactions.batching import Batches
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.links import BrokerLinks
from penstock.transactions.transaction import VERSION_2, Identity

RETRY_SECONDS: Final = 0.02
MAX_TRIES: Final = 25
"""Number of attempts at another broker's coordinator while the previous transaction is ending; they take half
a second in total.
"""


_Subject = tuple[str, Identity, bool]
"""Transactional id, producer, and True if the partition is to be added."""


class _Question:
    def __init__(self, subject: _Subject, partition: TopicPartition) -> None:
        self.subject = subject
        self.partition = partition
        self.answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def settle(self, code: ErrorCode) -> None:
        """Set the answer. Only the first call has an effect."""
        if not self.answer.done():
            self.answer.set_result(code)


class Verifier:
    def __init__(
        self, node_id: BrokerId, coordinator: TransactionCoordinator, links: BrokerLinks, logger: Logger
    ) -> None:
        self._node_id = node_id
        self._coordinator = coordinator
        self._links = links
        self._logger = logger
        self._batches: Batches[_Question] = Batches(self._ask)

    def vouches_for(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        partition: TopicPartition,
    ) -> bool:
        """True if `verify` would confirm the partition at once, because this broker is the coordinator and no
        decision about the id is uncommitted.
        """
        try:
            shard = self._coordinator.shard_of(transactional_id)
        except BrokerError:
            return False
        return shard.vouches_for(transactional_id, Identity(producer_id, epoch), partition)

    async def verify(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        partition: TopicPartition,
        is_implicit: bool,
    ) -> ErrorCode:
        """Verify that the partition is in the open transaction of this producer. NONE is the final
        confirmation.

        Other codes are those of the coordinator: PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING,
        TRANSACTION_ABORTABLE (the partition is not in the transaction), and the retriable
        CONCURRENT_TRANSACTIONS, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        producer = Identity(producer_id, epoch)
        for _ in range(MAX_TRIES):
            try:
                leader = self._coordinator.leader_of(transactional_id)
                if leader == NO_LEADER:
                    return ErrorCode.coordinator_not_available
                if leader == self._node_id:
                    return await self._look(transactional_id, producer, partition, is_implicit)
            except BrokerError as error:
                return error.code
            question = _Question((transactional_id, producer, is_implicit), partition)
            self._batches.add(leader, question)
            code = await question.answer
            if code is not ErrorCode.concurrent_transactions:
                return code
            await asyncio.sleep(RETRY_SECONDS)
        return ErrorCode.concurrent_transactions

    async def close(self) -> None:
        for question in await self._batches.close():
            question.settle(ErrorCode.coordinator_not_available)
        self._links.close()

    async def _look(
        self, transactional_id: str, producer: Identity, partition: TopicPartition, is_implicit: bool
    ) -> ErrorCode:
        shard = self._coordinator.shard_of(transactional_id)
        if is_implicit:
            await shard.add_partitions(transactional_id, producer, [partition], VERSION_2)
            return ErrorCode.none
        return (await shard.verify(transactional_id, producer, [partition]))[partition]

    async def _ask(self, leader: BrokerId, questions: list[_Question]) -> None:
        together: dict[_Subject, list[_Question]] = {}
        for question in questions:
            together.setdefault(question.subject, []).append(question)
        try:
            wanted = [_partitions_to_add(subject, asked) for subject, asked in together.items()]
            results = await self._links.send(
                leader, lambda connection: add_partitions_to_txn(connection, wanted)
            )
            for asked, codes in zip(together.values(), results, strict=True):
                for question in asked:
                    question.settle(codes[question.partition])
        except (OSError, PenstockError, TimeoutError) as error:
            self._logger.error_rarely(
                "transaction coordinator could not be reached", error, coordinator=leader
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, producers must not wait for ever
            self._logger.error("verification of a transaction failed", error, coordinator=leader)
        finally:
            for question in questions:
                question.settle(ErrorCode.coordinator_not_available)


def _partitions_to_add(subject: _Subject, asked: list[_Question]) -> PartitionsToAdd:
    transactional_id, producer, is_implicit = subject
    partitions = [question.partition for question in asked]
    return PartitionsToAdd(
        transactional_id, producer.producer_id, producer.epoch, not is_implicit, partitions
    )
