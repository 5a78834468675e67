"""What `penstock transaction` asks about transactions that are open in partitions while no coordinator knows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.cli.failures import Failure
from penstock.cli.transaction_client import PATIENCE_SECONDS, describe_all, transactional_ids
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import check_error
from penstock.internal_client.routes import Routes
from penstock.net.broker_connection import BrokerConnection

_WRITE_TXN_MARKERS, _MARKERS_VERSION = 27, 1
_DESCRIBE_PRODUCERS = 61
_UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort")

_REASONS = {
    ErrorCode.invalid_txn_state: "its coordinator knows it: `penstock transaction list` shows it, and `penstock "
    "transaction abort ID` aborts it",
    ErrorCode.coordinator_not_available: "not every coordinator could be asked whether it knows it; try again",
    ErrorCode.concurrent_transactions: "its producer has written meanwhile",
}


@dataclass(frozen=True, slots=True)
class OpenInPartition:
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


async def open_in(routes: Routes, topic: str, partition: int) -> list[OpenInPartition]:
    """The transactions that are open in a partition."""

    async def ask_client(client: BrokerConnection) -> Any:
        fields = {"topics": [{"name": topic, "partition_indexes": [partition]}]}
        answer = await client.request(_DESCRIBE_PRODUCERS, 0, fields)
        (found,) = answer.topics[0].partitions
        check_error(found.error_code, found.error_message)
        return found.active_producers

    try:
        producers = await routes.at_leader(topic, partition, ask_client, PATIENCE_SECONDS)
    except BrokerError as error:
        raise Failure(f"{topic}-{partition} could not be looked at: {error.code.name}") from error
    return [
        OpenInPartition(
            topic,
            partition,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.current_txn_start_offset,
            each.last_timestamp,
        )
        for each in producers
        if each.current_txn_start_offset >= 0
    ]


async def find_hanging(routes: Routes, topics: Iterable[str]) -> list[OpenInPartition]:
    """Those of all partitions of these topics, or of all topics, that no coordinator knows."""
    known_topics = await routes.topics()
    suspects: list[OpenInPartition] = []
    for name in sorted(set(topics) or known_topics):
        if name not in known_topics:
            raise Failure(f"there is no topic {name!r}")
        for partition in range(len(known_topics[name].partitions)):
            suspects += await open_in(routes, name, partition)
    if not suspects:
        return []
    described = await describe_all(routes, await transactional_ids(routes, _UNDER_WAY))
    known = {
        (each.producer_id, topic, partition)
        for each in described
        for topic, partitions in each.partitions.items()
        for partition in partitions
    }
    unknown = [each for each in suspects if (each.producer_id, each.topic, each.partition) not in known]
    # One that has ended since was known when it was looked at.
    return [each for each in unknown if not await _has_ended(routes, each)]


async def abort_hanging(routes: Routes, hanging: OpenInPartition) -> None:
    async def ask_client(client: BrokerConnection) -> None:
        marker = {
            "producer_id": hanging.producer_id,
            "producer_epoch": hanging.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": hanging.topic, "partition_indexes": [hanging.partition]}],
            "coordinator_epoch": hanging.coordinator_epoch,
        }
        answer = await client.request(_WRITE_TXN_MARKERS, _MARKERS_VERSION, {"markers": [marker]})
        check_error(answer.markers[0].topics[0].partitions[0].error_code)

    try:
        await routes.at_leader(hanging.topic, hanging.partition, ask_client, PATIENCE_SECONDS)
    except BrokerError as error:
        if await _has_ended(routes, hanging):
            return  # by an earlier try, or by itself
        reason = _REASONS.get(error.code, error.code.name)
        raise Failure(
            f"the transaction of producer {hanging.producer_id} in {hanging.topic}-{hanging.partition} was not aborted",
            f"{reason}.",
        ) from error


async def _has_ended(routes: Routes, transaction: OpenInPartition) -> bool:
    still_open = await open_in(routes, transaction.topic, transaction.partition)
    return transaction.start_offset not in {each.start_offset for each in still_open}
