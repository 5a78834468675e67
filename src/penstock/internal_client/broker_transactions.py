"""Requests about transactions that one broker sends to another, each on a connection between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.errors import ErrorCode
from penstock.internal_client.api import ClientApi, check_error
from penstock.model import TopicPartition
from penstock.net.broker_connection import BrokerConnection
from penstock.records.control import Marker
from penstock.wire.known_transactions import (
    KnownTransactions,
    OpenTransaction,
    decode_known_transactions_response,
    encode_known_transactions_request,
)

_ADD_PARTITIONS_TO_TXN = ClientApi(24, 5)
_WRITE_TXN_MARKERS = ClientApi(27, 2)

PartitionErrors = Mapping[TopicPartition, ErrorCode]
"""Error code of each partition. A partition that the response leaves out has no entry."""


class MarkersToWrite(NamedTuple):
    """One marker and the partitions to write it to."""

    marker: Marker
    transaction_version: int
    partitions: Sequence[TopicPartition]


class PartitionsToAdd(NamedTuple):
    """Partitions to verify in, or to add to, a producer's open transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    partitions: Iterable[TopicPartition]


async def write_txn_markers(
    connection: BrokerConnection, wanted: Sequence[MarkersToWrite]
) -> list[PartitionErrors]:
    """Ask a partition leader to write markers. The results are in the order of `wanted`."""
    response = await _WRITE_TXN_MARKERS.call(connection, {"markers": [_marker(each) for each in wanted]})
    results = {
        result.producer_id: {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for topic in result.topics
            for partition in topic.partitions
        }
        for result in response.markers
    }
    return [results.get(each.marker.producer_id, {}) for each in wanted]


async def add_partitions_to_txn(
    connection: BrokerConnection, wanted: Sequence[PartitionsToAdd]
) -> list[PartitionErrors]:
    """Ask a coordinator to verify or add partitions of transactions. The results are in the order of `wanted`."""
    fields = {"transactions": [_transaction(each) for each in wanted]}
    response = await _ADD_PARTITIONS_TO_TXN.call(connection, fields)
    check_error(response.error_code)
    return [
        {
            TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in response.results_by_transaction
    ]


async def known_transactions(
    connection: BrokerConnection, wanted: Sequence[OpenTransaction]
) -> KnownTransactions:
    """Ask a broker which of these open transactions its coordinator knows."""
    correlation_id = connection.next_correlation_id()
    frame = encode_known_transactions_request(correlation_id, connection.client_id, wanted)
    response = decode_known_transactions_response(await connection.exchange(correlation_id, frame))
    check_error(response.error_code)
    return response


def _marker(wanted: MarkersToWrite) -> dict[str, Any]:
    marker = wanted.marker
    topics = _by_topic(wanted.partitions)
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.is_commit,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": wanted.transaction_version,
    }


def _transaction(wanted: PartitionsToAdd) -> dict[str, Any]:
    topics = _by_topic(wanted.partitions)
    return {
        "transactional_id": wanted.transactional_id,
        "producer_id": wanted.producer_id,
        "producer_epoch": wanted.producer_epoch,
        "verify_only": wanted.verify_only,
        "topics": [{"name": name, "partitions": sorted(set(indexes))} for name, indexes in topics.items()],
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics
