"""OffsetForLeaderEpoch: end offset of a leader epoch, from which a consumer detects a truncated log (KIP-320)."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.model import LeaderEpoch
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import Operation, ResourceType


def handle(request: Request, message: Any) -> Fields:
    topics = [
        {
            "topic": topic.topic,
            "partitions": [_end_of_epoch(request, topic.topic, asked) for asked in topic.partitions],
        }
        for topic in message.topics
    ]
    return {"throttle_time": NO_TIME, "topics": topics}


API = Api(23, 2, 4, handle)


def _end_of_epoch(request: Request, topic: str, asked: Any) -> Fields:
    fields = {
        "error_code": ErrorCode.none,
        "partition": asked.partition,
        "leader_epoch": -1,
        "end_offset": -1,
    }
    try:
        request.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        replica = request.context.replicas.get(request.context.source_of(topic), asked.partition)
        replica.check_leader_epoch(asked.current_leader_epoch)
    except BrokerError as error:
        return fields | {"error_code": error.code}
    epoch, end_offset = replica.log.end_of_epoch(LeaderEpoch(asked.leader_epoch))
    return fields | {"leader_epoch": epoch, "end_offset": end_offset}
