"""Transactions of a cluster at their coordinators: list, describe, begin and end them; and open transactions
of partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import RESPONSE_SECONDS, ClientApi, check_error
from penstock.internal_client.connections import Request
from penstock.internal_client.routes import CoordinatorKind, Routes
from penstock.net.broker_connection import BrokerConnection
from penstock.wire.decoding import EPOCH
from penstock.wire.init_producer_id import InitProducerIdRequest, encode_init_producer_id
from penstock.wire.messages import decode_response_frame

T = TypeVar("T")

ONGOING = "Ongoing"
_INIT_PRODUCER_ID = ClientApi(22, 5)
_END_TXN = ClientApi(26, 5)
_WRITE_TXN_MARKERS = ClientApi(27, 1)
_DESCRIBE_PRODUCERS = ClientApi(61, 0)
_DESCRIBE_TRANSACTIONS = ClientApi(65, 0)
_LIST_TRANSACTIONS = ClientApi(66, 2)
_IDEMPOTENT_TIMEOUT_MS = 60_000
_MILLISECOND = timedelta(milliseconds=1)


class ProducerIdentity(NamedTuple):
    """Identity that a producer writes with. Without a transactional id the producer is idempotent only."""

    transactional_id: str | None
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int | None
    """Timeout of the transaction in milliseconds; None for a held transaction, which no timeout ends."""
    start_ms: int | None
    """Time at which the open transaction began, in milliseconds since the epoch; None if none is open."""
    partitions: Mapping[str, Sequence[int]]

    @property
    def is_open(self) -> bool:
        return self.state == ONGOING

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.transactional_id, self.producer_id, self.producer_epoch)


@dataclass(frozen=True, slots=True)
class OpenInPartition:
    """Transaction that is open in one partition, as the partition's leader knows it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


async def list_transactions(
    connection: BrokerConnection, states: Sequence[str] = (), pattern: str | None = None
) -> list[TransactionSummary]:
    """List the transactional ids that this broker coordinates, filtered by state and by a regular expression."""
    fields = {
        "state_filters": list(states),
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": pattern,
    }
    response = await _LIST_TRANSACTIONS.call(connection, fields)
    check_error(response.error_code)
    return [
        TransactionSummary(each.transactional_id, each.producer_id, each.transaction_state)
        for each in response.transaction_states
    ]


async def init_producer_id(
    connection: BrokerConnection,
    transactional_id: str | None,
    timeout_ms: int = _IDEMPOTENT_TIMEOUT_MS,
    *,
    is_held: bool = False,
) -> ProducerIdentity:
    """Obtain a producer id and epoch. The previous producer of the transactional id is fenced, and its
    transaction ends.

    With `is_held`, no timeout ends the producer's transactions; an id that has an open transaction is
    refused.
    """
    request = InitProducerIdRequest(transactional_id, timeout_ms, is_held=is_held)
    correlation_id = connection.next_correlation_id()
    key, version = _INIT_PRODUCER_ID
    frame = encode_init_producer_id(version, correlation_id, connection.client_id, request)
    async with asyncio.timeout(RESPONSE_SECONDS):
        received = await connection.exchange(correlation_id, frame)
    response = decode_response_frame(key, version, received)
    check_error(response.error_code)
    return ProducerIdentity(transactional_id, response.producer_id, response.producer_epoch)


class TransactionCalls:
    def __init__(self, routes: Routes, patience_seconds: float | None = None) -> None:
        """Create the client. `patience_seconds` limits the retries at coordinators; None for the limit of the
        routes.
        """
        self._routes = routes
        self._patience_seconds = patience_seconds

    async def all(self, states: Sequence[str] = ()) -> Sequence[TransactionSummary]:
        """List the transactional ids of all coordinators, sorted: those in `states` or, if it is empty, all."""
        found = await self._routes.at_all(lambda connection: list_transactions(connection, states))
        return sorted((each for some in found for each in some), key=lambda each: each.transactional_id)

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Describe one transactional id. Raises TRANSACTIONAL_ID_NOT_FOUND if no coordinator knows it."""

        async def request(connection: BrokerConnection) -> TransactionDescription:
            fields = {"transactional_ids": [transactional_id]}
            response = await _DESCRIBE_TRANSACTIONS.call(connection, fields)
            [state] = response.transaction_states
            check_error(state.error_code)
            return _description(state)

        return await self._at_coordinator(transactional_id, request)

    async def find(self, transactional_id: str) -> TransactionDescription | None:
        """Describe one transactional id; None if no coordinator knows it."""
        try:
            return await self.describe(transactional_id)
        except BrokerError as error:
            if error.code is ErrorCode.transactional_id_not_found:
                return None
            raise

    async def begin(self, transactional_id: str, timeout_ms: int, *, is_held: bool) -> ProducerIdentity:
        """Obtain the producer of a transactional id from its coordinator, as `init_producer_id` does."""
        return await self._at_coordinator(
            transactional_id,
            lambda connection: init_producer_id(connection, transactional_id, timeout_ms, is_held=is_held),
        )

    async def end(self, producer: ProducerIdentity, *, is_commit: bool) -> None:
        """Commit or abort the open transaction of a producer.

        A repeated request succeeds. Raises INVALID_TXN_STATE if the transaction has ended the other way.
        """
        fields = {
            "transactional_id": producer.transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "committed": is_commit,
        }

        async def request(connection: BrokerConnection) -> None:
            check_error((await _END_TXN.call(connection, fields)).error_code)

        await self._at_coordinator(producer.transactional_id or "", request)

    async def abort(self, transactional_id: str) -> None:
        """Abort the open transaction of an id and fence its producer. Raises INVALID_TXN_STATE if none is open."""
        description = await self.describe(transactional_id)
        if not description.is_open:
            raise BrokerError(
                ErrorCode.invalid_txn_state,
                f"the transaction is {description.state}; there is nothing to abort",
            )
        await self.end(description.producer, is_commit=False)

    async def open_in(self, topic: str, partition: int) -> list[OpenInPartition]:
        """List the transactions that are open in a partition, by DescribeProducers at its leader."""
        fields = {"topics": [{"name": topic, "partition_indexes": [partition]}]}

        async def request(connection: BrokerConnection) -> Any:
            response = await _DESCRIBE_PRODUCERS.call(connection, fields)
            [found] = response.topics[0].partitions
            check_error(found.error_code, found.error_message)
            return found.active_producers

        producers = await self._routes.at_leader(topic, partition, request)
        return [
            _open_in_partition(topic, partition, each)
            for each in producers
            if each.current_txn_start_offset >= 0
        ]

    async def abort_hanging(self, hanging: OpenInPartition) -> None:
        """Ask the partition's leader to abort a transaction that no coordinator knows.

        Raises INVALID_TXN_STATE if a coordinator knows it, COORDINATOR_NOT_AVAILABLE if not all coordinators
        responded.
        """
        marker = {
            "producer_id": hanging.producer_id,
            "producer_epoch": hanging.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": hanging.topic, "partition_indexes": [hanging.partition]}],
            "coordinator_epoch": hanging.coordinator_epoch,
        }

        async def request(connection: BrokerConnection) -> None:
            response = await _WRITE_TXN_MARKERS.call(connection, {"markers": [marker]})
            check_error(response.markers[0].topics[0].partitions[0].error_code)

        await self._routes.at_leader(hanging.topic, hanging.partition, request)

    async def _at_coordinator(self, transactional_id: str, request: Request[T]) -> T:
        return await self._routes.at_coordinator(
            CoordinatorKind.TRANSACTION, transactional_id, request, self._patience_seconds
        )


def _description(state: Any) -> TransactionDescription:
    timeout_ms = state.transaction_timeout // _MILLISECOND
    start_ms = (state.transaction_start_time - EPOCH) // _MILLISECOND
    return TransactionDescription(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        None if timeout_ms < 0 else timeout_ms,
        None if start_ms < 0 else start_ms,
        {topic.topic: tuple(topic.partitions) for topic in state.topics},
    )


def _open_in_partition(topic: str, partition: int, producer: Any) -> OpenInPartition:
    return OpenInPartition(
        topic,
        partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )
