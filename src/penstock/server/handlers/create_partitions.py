"""CreatePartitions: adds partitions to a topic; existing records stay in their partitions."""

from __future__ import annotations

from typing import Any

from penstock.cluster.internal_topics import refuse_internal
from penstock.cluster.topics import NewPartitions
from penstock.errors import BrokerError
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, carried_out, code_of, message_of
from penstock.server.handlers.mutation_quota import count_mutations, partition_count, too_many_mutations
from penstock.server.security import Operation, ResourceType

FIRST_STRICT = 3


async def handle(request: Request, message: Any) -> Fields:
    refusals = [
        _refusal(request, asked.name) or too_many_mutations(request, FIRST_STRICT) for asked in message.topics
    ]
    before = {asked.name: partition_count(request, asked.name) for asked in message.topics}
    wanted = [
        _new_partitions(asked)
        for asked, refusal in zip(message.topics, refusals, strict=True)
        if refusal is None
    ]
    change = request.context.administration.create_partitions(wanted, validate_only=message.validate_only)
    done = await carried_out(request, change, len(wanted), message.timeout)
    if not message.validate_only:
        count_mutations(request, done, FIRST_STRICT, before)
    outcomes = iter(done)
    results = []
    for asked, refusal in zip(message.topics, refusals, strict=True):
        outcome = refusal or next(outcomes)
        results.append(
            {"name": asked.name, "error_code": code_of(outcome), "error_message": message_of(outcome)}
        )
    return {"throttle_time": NO_TIME, "results": results}


API = Api(37, 0, 3, handle)


def _refusal(request: Request, topic: str) -> BrokerError | None:
    try:
        request.require(Operation.ALTER, ResourceType.TOPIC, topic)
        refuse_internal(topic)
    except BrokerError as error:
        return error
    return None


def _new_partitions(asked: Any) -> NewPartitions:
    assignment = (
        None if asked.assignments is None else [assigned.broker_ids for assigned in asked.assignments]
    )
    return NewPartitions(asked.name, asked.count, assignment)
