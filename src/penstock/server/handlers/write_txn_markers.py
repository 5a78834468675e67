"""WriteTxnMarkers: a transaction coordinator writes the outcome of transactions to partitions that this broker leads.

Markers decide which records read_committed consumers see, so only brokers of this cluster may send the request. One
exception: an operator may abort a hanging transaction, after this broker has asked the coordinators about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.model import ProducerId, TopicPartition
from penstock.records.control import Marker
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from penstock.transactions.transaction import VERSION_1

MAX_WAIT_SECONDS = 1.0


async def handle(request: Request, message: Any) -> Fields:
    if request.session.broker_id is not None:
        request.context.marker_writer.check_connection(request.session.broker_id, request.session.number)
    results = await asyncio.gather(*(_write(request, asked) for asked in message.markers))
    return {"markers": results}


API = Api(27, 1, 2, handle)


async def _write(request: Request, asked: Any) -> Fields:
    partitions = [
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partition_indexes
    ]
    marker = Marker(
        asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch
    )
    codes: Mapping[TopicPartition, ErrorCode]
    if request.session.broker_id is None:
        codes = {partition: await _abort(request, marker, partition) for partition in partitions}
    else:
        version = getattr(asked, "transaction_version", VERSION_1)
        # Bounded, because other markers on the same connection must not wait for a partition that cannot commit
        # now.
        codes = await request.context.marker_writer.write(
            marker, version, list(dict.fromkeys(partitions)), MAX_WAIT_SECONDS
        )
    return {"producer_id": asked.producer_id, "topics": _topics(codes)}


async def _abort(request: Request, marker: Marker, partition: TopicPartition) -> ErrorCode:
    hanging = request.context.hanging_transactions
    try:
        if marker.is_commit:
            raise BrokerError(
                ErrorCode.cluster_authorization_failed,
                "only a transaction coordinator may write a commit marker",
            )
        request.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        suspect = hanging.suspect(partition, ProducerId(marker.producer_id))
        if suspect.entry.epoch != marker.producer_epoch:
            raise BrokerError(ErrorCode.invalid_producer_epoch)
    except BrokerError as error:
        return error.code
    [code] = await hanging.abort([suspect])
    return code


def _topics(codes: Mapping[TopicPartition, ErrorCode]) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for partition, code in codes.items():
        topics.setdefault(partition.topic, []).append(
            {"partition_index": partition.partition, "error_code": code}
        )
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
