"""ElectLeaders: elects the preferred leader, or, in an unclean election, any replica if none is in sync (KIP-460)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.cluster.partition_admin import ElectionType, check_named
from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicPartition
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, carried_out, code_of, message_of
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType


async def handle(request: Request, message: Any) -> Fields:
    asked = message.topic_partitions
    try:
        check_named(sum(len(topic.partitions) for topic in asked or ()))
    except BrokerError as error:
        return _fields(error.code, [])
    asks_for_all, names = asked is None, _names(request, message)
    try:
        request.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        election = _election(getattr(message, "election_type", ElectionType.PREFERRED))
    except BrokerError as error:
        refused = [] if asks_for_all else [(name, error) for name in names]
        return _fields(error.code, refused)
    change = request.context.partition_admin.elect(names, election)
    results = zip(names, await carried_out(request, change, len(names), message.timeout), strict=True)
    if asks_for_all:
        told = [each for each in results if code_of(each[1]) is not ErrorCode.election_not_needed]
        return _fields(ErrorCode.none, told)
    return _fields(ErrorCode.none, list(results))


API = Api(43, 0, 2, handle)


def _names(request: Request, message: Any) -> list[TopicPartition]:
    if message.topic_partitions is None:
        topics = request.context.image.topics.values()
        return [
            TopicPartition(topic.name, index) for topic in topics for index in range(len(topic.partitions))
        ]
    return [
        TopicPartition(each.topic, index) for each in message.topic_partitions for index in each.partitions
    ]


def _election(number: int) -> ElectionType:
    try:
        return ElectionType(number)
    except ValueError:
        raise BrokerError(ErrorCode.invalid_request, f"unknown election type {number}") from None


def _fields(code: ErrorCode, results: Sequence[tuple[TopicPartition, BrokerError | None]]) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for name, result in results:
        topics.setdefault(name.topic, []).append(
            {
                "partition_id": name.partition,
                "error_code": code_of(result),
                "error_message": message_of(result),
            }
        )
    return {
        "throttle_time": NO_TIME,
        "error_code": code,
        "replica_election_results": [
            {"topic": topic, "partition_result": partitions} for topic, partitions in topics.items()
        ],
    }
