"""InitProducerId: an identity for an idempotent producer.

One without a transactional id always gets a new id with epoch 0, also when it asks to raise its epoch.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType

NO_ID, NO_EPOCH = -1, -1


async def handle(request: Request, message: Any) -> Fields:
    fields = {
        "throttle_time": NO_TIME,
        "error_code": ErrorCode.none,
        "producer_id": NO_ID,
        "producer_epoch": NO_EPOCH,
    }
    try:
        _check(request, message)
        return fields | {"producer_id": await request.broker.producer_ids.next(), "producer_epoch": 0}
    except BrokerError as error:
        return fields | {"error_code": error.code}


API = Api(22, 0, 5, handle)


def _check(request: Request, message: Any) -> None:
    if message.transactional_id is not None:
        request.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
        if not message.transactional_id:
            raise BrokerError(ErrorCode.invalid_request, "a transactional id is not empty")
        if message.transaction_timeout <= NO_TIME:
            raise BrokerError(ErrorCode.invalid_transaction_timeout)
        raise BrokerError(ErrorCode.not_coordinator, "this broker coordinates no transactions")
    request.require(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    producer_id, epoch = getattr(message, "producer_id", NO_ID), getattr(message, "producer_epoch", NO_EPOCH)
    if (producer_id == NO_ID) != (epoch == NO_EPOCH):
        raise BrokerError(ErrorCode.invalid_request, "a producer id goes with its epoch")
