"""CreatePartitions: more partitions for a topic; no data moves."""

from __future__ import annotations

from typing import Any

from penstock.cluster.topics import NewPartitions
from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, carried_out, code_of, message_of
from penstock.server.security import Operation, ResourceType


async def handle(request: Request, message: Any) -> Fields:
    allowed = [asked for asked in message.topics if _may_alter(request, asked.name)]
    change = request.broker.controller.create_partitions(
        [_new_partitions(asked) for asked in allowed], validate_only=message.validate_only
    )
    outcomes = iter(await carried_out(request, change, len(allowed), message.timeout))
    denied = BrokerError(ErrorCode.topic_authorization_failed)
    results = []
    for asked in message.topics:
        outcome = next(outcomes) if _may_alter(request, asked.name) else denied
        results.append(
            {"name": asked.name, "error_code": code_of(outcome), "error_message": message_of(outcome)}
        )
    return {"throttle_time": NO_TIME, "results": results}


API = Api(37, 0, 3, handle)


def _may_alter(request: Request, topic: str) -> bool:
    return request.allowed(Operation.ALTER, ResourceType.TOPIC, topic)


def _new_partitions(asked: Any) -> NewPartitions:
    assignment = (
        None if asked.assignments is None else [assigned.broker_ids for assigned in asked.assignments]
    )
    return NewPartitions(asked.name, asked.count, assignment)
