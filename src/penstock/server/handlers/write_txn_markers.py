"""WriteTxnMarkers: a transaction coordinator has its outcome written to the partitions that this broker leads.

Only a broker of this cluster may ask: whoever writes markers decides what readers of committed data see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.errors import ErrorCode
from penstock.model import TopicPartition
from penstock.records.control import Marker
from penstock.server.dispatch import Api, Fields, Request
from penstock.transactions.transaction import VERSION_1

MAX_WAIT_SECONDS = 1.0


async def handle(request: Request, message: Any) -> Fields:
    if request.session.broker_id is not None:
        request.broker.marker_writer.check_connection(request.session.broker_id, request.session.number)
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
        codes = dict.fromkeys(partitions, ErrorCode.cluster_authorization_failed)
    else:
        version = getattr(asked, "transaction_version", VERSION_1)
        # Others come on the same connection: they do not wait for a partition that cannot commit at present.
        codes = await request.broker.marker_writer.write(
            marker, version, list(dict.fromkeys(partitions)), MAX_WAIT_SECONDS
        )
    return {"producer_id": asked.producer_id, "topics": _topics(codes)}


def _topics(codes: Mapping[TopicPartition, ErrorCode]) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for partition, code in codes.items():
        topics.setdefault(partition.topic, []).append(
            {"partition_index": partition.partition, "error_code": code}
        )
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
