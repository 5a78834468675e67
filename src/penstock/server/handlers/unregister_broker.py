"""UnregisterBroker (KIP-631): removes a stopped broker without replicas from the cluster."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError
from penstock.model import BrokerId
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, code_of, message_of
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType


async def handle(request: Request, message: Any) -> Fields:
    error = None
    try:
        request.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        await request.context.administration.unregister_broker(BrokerId(message.broker_id))
    except BrokerError as refusal:
        error = refusal
    return {"throttle_time": NO_TIME, "error_code": code_of(error), "error_message": message_of(error)}


API = Api(64, 0, 0, handle)
