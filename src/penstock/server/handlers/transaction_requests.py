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
    """Shard of the transactional id. Raises BrokerError if the client is not authorized, or another broker coordinates
    the id.
    """
    request.require(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)
    return request.context.transactions.shard_of(transactional_id)


def producer_of(message: Any) -> Identity:
    return Identity(ProducerId(message.producer_id), ProducerEpoch(message.producer_epoch))


def told(code: ErrorCode, version: int, first_with_fenced: int) -> ErrorCode:
    """Error code in a version: below `first_with_fenced`, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED."""
    if code is ErrorCode.producer_fenced and version < first_with_fenced:
        return ErrorCode.invalid_producer_epoch
    return code
