"""Limits of the number of transactional ids and of held transactions, over all shards of a coordinator."""

from __future__ import annotations

from typing import Final

from penstock.config import TRANSACTION_HELD_MAX_COUNT, TRANSACTIONAL_ID_MAX_COUNT
from penstock.errors import BrokerError, ErrorCode
from penstock.transactions.context import TransactionContext
from penstock.transactions.transaction import Transaction

USUAL_ID_CHARACTERS: Final = 256
"""Average length of a transactional id in characters. The maximum number of ids times this is the limit of
their total length.
"""


def check_room(context: TransactionContext, known: Transaction | None) -> None:
    """Raise BrokerError if the id is new (`known` is None) and the maximum number or total length of ids is
    reached.
    """
    max_count = context.config[TRANSACTIONAL_ID_MAX_COUNT]
    if known is None and (
        context.id_count >= max_count or context.id_characters >= max_count * USUAL_ID_CHARACTERS
    ):
        raise BrokerError(
            ErrorCode.policy_violation,
            f"this broker has the maximum of transactional ids (transactional.id.max.count={max_count})",
        )


def check_room_to_hold(context: TransactionContext, known: Transaction | None) -> None:
    """Raise BrokerError if the id's transactions are not held yet and the maximum number of held transactions
    is reached.
    """
    is_counted = known is not None and known.is_held
    if not is_counted and context.held_count >= context.config[TRANSACTION_HELD_MAX_COUNT]:
        raise BrokerError(
            ErrorCode.policy_violation,
            "this broker has the maximum number of held transactions (transaction.held.max.count)",
        )
