"""Helpers of the handlers of transaction APIs."""

from __future__ import annotations

from typing import Any

from penstock.errors import ErrorCode
from penstock.model import ProducerEpoch, ProducerId
from penstock.server.dispatch import Request
from penstock.server.security import Operation, ResourceType
from penstock.transactions.shard import TransactionShard
from penstock.transactions.transaction import Identity


def shard_for(request: Request, operation: Operation, transactional_id: str) -> TransactionShard:
    """TransactionShard of the transactional id; BrokerError when the client is not authorized, or another broker
    coordinates it.
    """
    request.require(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)
    return request.context.transactions.shard_of(transactional_id)


def producer_of(message: Any) -> Identity:
    return Identity(ProducerId(message.producer_id), ProducerEpoch(message.producer_epoch))


def told(code: ErrorCode, version: int, first_with_fenced: int) -> ErrorCode:
    """Error for the client's version: PRODUCER_FENCED is new, older clients know INVALID_PRODUCER_EPOCH."""
    if code is ErrorCode.producer_fenced and version < first_with_fenced:
        return ErrorCode.invalid_producer_epoch
    return code
