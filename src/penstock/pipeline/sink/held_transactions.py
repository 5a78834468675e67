"""Held transactions: a task claims a transactional id and leaves its transaction open; the driver, another process,
ends it. No timeout aborts a held transaction.

A transactional id with an open held transaction cannot be claimed, so that no task can fence a transaction that the
driver has yet to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from itertools import count
from typing import TypeVar

from penstock.cluster.internal_topics import TRANSACTIONS_TOPIC
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.retries import retry
from penstock.internal_client.routes import Routes, read_topic
from penstock.internal_client.transactions import (
    ONGOING,
    ProducerIdentity,
    TransactionCalls,
    list_transactions,
)
from penstock.model import BrokerId
from penstock.net.broker_connection import BrokerConnection
from penstock.pipeline.sink.producer import RETRY_SECONDS

A = TypeVar("A")
T = TypeVar("T")

_TIMEOUT_MS = 10_000
"""Transaction timeout in milliseconds of transactions that are not held: the longest time for which a dead driver
blocks `read_committed` readers.
"""
_MAX_AT_ONCE = 100

_GONE_ON = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_id_mapping})
"""Errors for a transactional id that has a newer producer or has expired. The transaction has ended, and the
coordinator no longer knows its outcome.
"""


class TransactionOutcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


async def claim(routes: Routes, prefix: str) -> ProducerIdentity:
    """Begin a held transaction with the first of the ids `prefix`0, `prefix`1, ... that has no open transaction."""
    for number in count():
        try:
            return await _initialise(routes, f"{prefix}{number}", is_held=True)
        except BrokerError as error:
            if error.code is not ErrorCode.invalid_txn_state:
                raise
    raise AssertionError


async def take_over(routes: Routes, transactional_id: str) -> ProducerIdentity:
    """Fence the previous producer of the id and abort its open transaction. The new transaction is not held."""
    return await _initialise(routes, transactional_id, is_held=False)


async def commit(
    routes: Routes, identities: Sequence[ProducerIdentity]
) -> dict[ProducerIdentity, TransactionOutcome]:
    """Commit these transactions. Returns the outcome of each, including transactions that had already ended."""
    outcomes = await _for_all(identities, partial(_outcome, routes, is_commit=True))
    return dict(zip(identities, outcomes, strict=True))


async def commit_own(routes: Routes, identity: ProducerIdentity) -> None:
    """Commit the transaction of this process. Raises BrokerError if the producer was fenced."""
    await _end(routes, identity, is_commit=True)


async def abort(
    routes: Routes, identities: Sequence[ProducerIdentity]
) -> dict[ProducerIdentity, TransactionOutcome]:
    """Abort these transactions. Returns the outcome of each, including transactions that had already ended."""
    outcomes = await _for_all(identities, partial(_outcome, routes, is_commit=False))
    return dict(zip(identities, outcomes, strict=True))


async def open_under(routes: Routes, prefix: str) -> list[ProducerIdentity]:
    """Open transactions whose transactional id starts with `prefix`, which must not contain special characters of
    regular expressions.
    """

    async def attempt() -> set[str]:
        routes.forget(TRANSACTIONS_TOPIC)
        led: dict[BrokerId, set[tuple[int, int]]] = {}
        for number, each in enumerate((await routes.topic(TRANSACTIONS_TOPIC)).partitions):
            led.setdefault(each.leader, set()).add((number, each.leader_epoch))
        found: set[str] = set()
        for leader, shards in led.items():
            connection = await routes.broker(leader)
            await _check_leads(connection, leader, shards)
            listed = await list_transactions(connection, [ONGOING], f"{prefix}.*")
            found.update(each.transactional_id for each in listed)
        return found

    ids = await retry(attempt, RETRY_SECONDS)
    described = await _for_all(ids, partial(_describe, routes))
    return [each for each in described if each is not None]


async def _initialise(routes: Routes, transactional_id: str, *, is_held: bool) -> ProducerIdentity:
    return await TransactionCalls(routes, RETRY_SECONDS).begin(transactional_id, _TIMEOUT_MS, is_held=is_held)


async def _outcome(routes: Routes, identity: ProducerIdentity, *, is_commit: bool) -> TransactionOutcome:
    """End a transaction and return its outcome. If it has already ended the other way, the coordinator responds with
    INVALID_TXN_STATE.
    """
    try:
        await _end(routes, identity, is_commit=is_commit)
    except BrokerError as error:
        if error.code in _GONE_ON:
            return TransactionOutcome.UNKNOWN
        if error.code is not ErrorCode.invalid_txn_state:
            raise
        is_commit = not is_commit
    return TransactionOutcome.COMMITTED if is_commit else TransactionOutcome.ABORTED


async def _end(routes: Routes, identity: ProducerIdentity, *, is_commit: bool) -> None:
    await TransactionCalls(routes, RETRY_SECONDS).end(identity, is_commit=is_commit)


async def _check_leads(connection: BrokerConnection, leader: BrokerId, shards: set[tuple[int, int]]) -> None:
    """Raise BrokerError if the broker does not know yet that it leads these partitions of the transactions topic,
    because its list of transactions would not be complete.
    """
    topic = await read_topic(connection, TRANSACTIONS_TOPIC)
    known = {
        (number, each.leader_epoch)
        for number, each in enumerate(topic.partitions if topic else ())
        if each.leader == leader
    }
    if not shards <= known:
        raise BrokerError(ErrorCode.not_coordinator)


async def _describe(routes: Routes, transactional_id: str) -> ProducerIdentity | None:
    """Producer of the open transaction of this id; None if it has none."""
    found = await TransactionCalls(routes, RETRY_SECONDS).find(transactional_id)
    return found.producer if found is not None and found.is_open else None


async def _for_all(items: Iterable[A], work: Callable[[A], Awaitable[T]]) -> list[T]:
    """Run `work` for all items, at most _MAX_AT_ONCE at a time."""
    gate = asyncio.Semaphore(_MAX_AT_ONCE)

    async def one(item: A) -> T:
        async with gate:
            return await work(item)

    return await asyncio.gather(*map(one, items))
