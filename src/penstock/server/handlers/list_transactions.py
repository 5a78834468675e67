"""ListTransactions: transactional ids that this broker coordinates, filtered by state, producer id, age and name
(KIP-664).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer.regexes import compile_regex
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import Operation, ResourceType
from penstock.transactions.transaction import Transaction, TransactionState

_STATES = {state.title: state for state in TransactionState}


async def handle(request: Request, message: Any) -> Fields:
    fields = {
        "throttle_time": NO_TIME,
        "error_code": ErrorCode.none,
        "unknown_state_filters": [name for name in message.state_filters if name not in _STATES],
        "transaction_states": (),
    }
    if request.context.transactions.is_loading:
        return fields | {"error_code": ErrorCode.coordinator_load_in_progress}
    try:
        listed = [
            {
                "transactional_id": transactional_id,
                "producer_id": transaction.producer.producer_id,
                "transaction_state": transaction.state.title,
            }
            async for transactional_id, transaction in _chosen(request, message)
            if request.shows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        ]
    except BrokerError as error:
        return fields | {"error_code": error.code}
    return fields | {"transaction_states": listed}


API = Api(66, 0, 2, handle)


async def _chosen(request: Request, message: Any) -> AsyncIterator[tuple[str, Transaction]]:
    states = {_STATES[name] for name in message.state_filters if name in _STATES}
    producers = set(message.producer_id_filters)
    min_age_ms = getattr(message, "duration_filter", -1)
    pattern = getattr(message, "transactional_id_pattern", None)
    regex = compile_regex(pattern) if pattern else None
    now_ms = request.context.clock.now_ms()
    async for _, transactions in request.context.transactions.walk():
        for transactional_id, transaction in transactions:
            if (
                (not message.state_filters or transaction.state in states)
                and (not producers or transaction.producer.producer_id in producers)
                and (min_age_ms < 0 or _age_ms(transaction, now_ms) > min_age_ms)
                and (regex is None or regex.fullmatch(transactional_id))
            ):
                yield transactional_id, transaction


def _age_ms(transaction: Transaction, now_ms: int) -> int:
    """Age of the open transaction in milliseconds; -1, which no filter accepts, if no transaction is open."""
    return -1 if transaction.is_idle else now_ms - transaction.start_ms
