"""Common part of the APIs for states of share-partitions: serves each partition of a request independently, and only
for brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.model import NO_TOPIC_ID, ShareKey, TopicId
from penstock.queues.state_shard import ShareStateShard
from penstock.server.dispatch import Fields, Request

Work = Callable[[ShareStateShard, ShareKey, Any], Awaitable[Fields]]
"""Function that serves one share-partition: takes its shard, its key and the partition in the request, and returns
response fields.
"""


async def serve(request: Request, message: Any, work: Work, empty: Fields) -> Fields:
    """Do the work for each partition. A partition with an error gets the fields in `empty`."""
    results = []
    for topic in message.topics:
        topic_id = NO_TOPIC_ID if topic.topic_id is None else TopicId(topic.topic_id)
        partitions = await asyncio.gather(
            *(
                _serve_one(request, ShareKey(message.group_id, topic_id, asked.partition), asked, work, empty)
                for asked in topic.partitions
            )
        )
        results.append({"topic_id": topic.topic_id, "partitions": partitions})
    return {"results": results}


async def _serve_one(request: Request, key: ShareKey, asked: Any, work: Work, empty: Fields) -> Fields:
    fields = {"partition": asked.partition, "error_code": ErrorCode.none, "error_message": None}
    try:
        if request.session.broker_id is None:
            raise BrokerError(
                ErrorCode.cluster_authorization_failed,
                "only brokers may read or write the states of share-partitions",
            )
        return {**fields, **await work(request.context.share.coordinator.shard_of(key), key, asked)}
    except BrokerError as error:
        return {**fields, **empty, "error_code": error.code, "error_message": str(error)}
