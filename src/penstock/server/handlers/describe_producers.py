"""DescribeProducers: active producers of a partition, with the start offsets of their open transactions (KIP-664)."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import Operation, ResourceType
from penstock.storage.producer_state import ProducerEntry

NONE = -1


def handle(request: Request, message: Any) -> Fields:
    asked: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = [
        {"name": name, "partitions": [_partition(request, name, index) for index in indexes]}
        for name, indexes in asked.items()
    ]
    return {"throttle_time": NO_TIME, "topics": topics}


API = Api(61, 0, 0, handle)


def _partition(request: Request, topic: str, index: int) -> Fields:
    fields = {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "error_message": None,
        "active_producers": (),
    }
    try:
        request.require(Operation.READ, ResourceType.TOPIC, topic)
        producers = request.context.replicas.get(topic, index).log.producers.copy()
    except BrokerError as error:
        return fields | {"error_code": error.code, "error_message": str(error)}
    return fields | {"active_producers": [_producer(*producer) for producer in producers.items()]}


def _producer(producer_id: int, entry: ProducerEntry) -> Fields:
    newest = entry.batches[-1] if entry.batches else None
    return {
        "producer_id": producer_id,
        "producer_epoch": entry.epoch,
        "last_sequence": NONE if newest is None else newest.last_sequence,
        "last_timestamp": NONE if newest is None else newest.timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_start_offset": entry.transaction_start,
    }
