"""DescribeTransactions: state of transactional ids (KIP-664).

A transactional id with held transactions has a timeout of -1. While a transaction is committing or aborting, the
response lists only the partitions that have no marker yet.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.transaction_requests import shard_for
from penstock.server.security import Operation, ResourceType
from penstock.transactions.transaction import NOBODY

HELD_TIMEOUT_MS = -1


def handle(request: Request, message: Any) -> Fields:
    states = [
        _describe(request, transactional_id) for transactional_id in dict.fromkeys(message.transactional_ids)
    ]
    return {"throttle_time": NO_TIME, "transaction_states": states}


API = Api(65, 0, 0, handle)


def _describe(request: Request, transactional_id: str) -> Fields:
    fields: Fields = {
        "error_code": ErrorCode.none,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": -1,
        "producer_id": NOBODY.producer_id,
        "producer_epoch": NOBODY.epoch,
        "topics": (),
    }
    try:
        shard = shard_for(request, Operation.DESCRIBE, transactional_id)
    except BrokerError as error:
        return {**fields, "error_code": error.code}
    transaction = shard.transactions.get(transactional_id)
    if transaction is None:
        return {**fields, "error_code": ErrorCode.transactional_id_not_found}
    topics: dict[str, list[int]] = {}
    for partition in sorted(shard.partitions_of(transactional_id)):
        if request.shows(Operation.DESCRIBE, ResourceType.TOPIC, partition.topic):
            topics.setdefault(partition.topic, []).append(partition.partition)
    return {
        **fields,
        "transaction_state": transaction.state.title,
        "transaction_timeout": HELD_TIMEOUT_MS if transaction.is_held else transaction.timeout_ms,
        "transaction_start_time": -1 if transaction.is_idle else transaction.start_ms,
        "producer_id": transaction.producer.producer_id,
        "producer_epoch": transaction.producer.epoch,
        "topics": [{"topic": name, "partitions": indexes} for name, indexes in topics.items()],
    }
