"""Held transactions, which one process writes and another one ends: a task claims a transactional id and
leaves its transaction open, the driver ends it, and no timeout aborts it.

A transactional id with an open transaction cannot be claimed, so that no task can fence a transaction that
the driver has yet to end.
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
from penstock.internal_client.api import RESPONSE_SECONDS, check_error
from penstock.internal_client.retries import retry
from penstock.internal_client.routes import CoordinatorKind, Routes
from penstock.model import BrokerId
from penstock.net.broker_connection import BrokerConnection
from penstock.pipeline.read_settings import CLIENT_ID
from penstock.pipeline.sink.producer import RETRY_SECONDS, WriterIdentity
from penstock.wire.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest, encode_init_producer_id
from penstock.wire.messages import decode_response_frame

A = TypeVar("A")
T = TypeVar("T")

_INIT_VERSION = 5
_TIMEOUT_MS = 10_000
"""Timeout in milliseconds of transactions that are not held. A driver that dies blocks readers for at most
this long.
"""
_METADATA, _METADATA_VERSION = 3, 12
_END_TXN, _END_TXN_VERSION = 26, 5
_DESCRIBE_TRANSACTIONS, _LIST_TRANSACTIONS, _LIST_VERSION = 65, 66, 2
_ONGOING = "Ongoing"
_MAX_AT_ONCE = 100

_GONE_ON = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_id_mapping})
"""Errors for a transactional id that has a newer producer or has expired. The transaction has ended, but the
coordinator does not know the outcome any more.
"""


class TransactionOutcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


async def claim(routes: Routes, prefix: str) -> WriterIdentity:
    """Claim the first of `prefix`0, `prefix`1, ... that has no open transaction, for a held transaction."""
    for number in count():
        try:
            return await _initialise(routes, f"{prefix}{number}", is_held=True)
        except BrokerError as error:
            if error.code is not ErrorCode.invalid_txn_state:
                raise
    raise AssertionError


async def take_over(routes: Routes, transactional_id: str) -> WriterIdentity:
    """Fence the previous producer of the id and abort its open transaction. The new transaction is not held."""
    return await _initialise(routes, transactional_id, is_held=False)


async def commit(
    routes: Routes, identities: Sequence[WriterIdentity]
) -> dict[WriterIdentity, TransactionOutcome]:
    """Commit these transactions. Returns the outcome of each, also for transactions that had ended before."""
    outcomes = await _for_all(identities, partial(_outcome, routes, is_commit=True))
    return dict(zip(identities, outcomes, strict=True))


async def commit_own(routes: Routes, identity: WriterIdentity) -> None:
    """Commit the transaction of this process. Raises BrokerError if the producer was fenced."""
    await _end(routes, identity, is_commit=True)


async def abort(
    routes: Routes, identities: Sequence[WriterIdentity]
) -> dict[WriterIdentity, TransactionOutcome]:
    """Abort these transactions. Returns the outcome of each, also for transactions that had ended before."""
    outcomes = await _for_all(identities, partial(_outcome, routes, is_commit=False))
    return dict(zip(identities, outcomes, strict=True))


async def open_under(routes: Routes, prefix: str) -> list[WriterIdentity]:
    """Open transactions whose transactional id starts with `prefix`, which must not contain characters
    special to regexes.
    """

    async def attempt() -> set[str]:
        routes.forget(TRANSACTIONS_TOPIC)
        led: dict[BrokerId, set[tuple[int, int]]] = {}
        for number, each in enumerate((await routes.topic(TRANSACTIONS_TOPIC)).partitions):
            led.setdefault(each.leader, set()).add((number, each.leader_epoch))
        found: set[str] = set()
        for leader, shards in led.items():
            client = await routes.broker(leader)
            await _check_leads(client, leader, shards)
            found.update(await _list(client, prefix))
        return found

    ids = await retry(attempt, RETRY_SECONDS)
    described = await _for_all(ids, partial(_describe, routes))
    return [each for each in described if each is not None]


async def _initialise(routes: Routes, transactional_id: str, *, is_held: bool) -> WriterIdentity:
    request = InitProducerIdRequest(transactional_id, _TIMEOUT_MS, is_held=is_held)

    async def ask(client: BrokerConnection) -> WriterIdentity:
        correlation_id = client.next_correlation_id()
        frame = encode_init_producer_id(_INIT_VERSION, correlation_id, CLIENT_ID, request)
        async with asyncio.timeout(RESPONSE_SECONDS):
            answer = await client.exchange(correlation_id, frame)
        response = decode_response_frame(INIT_PRODUCER_ID, _INIT_VERSION, answer)
        check_error(response.error_code)
        return WriterIdentity(transactional_id, response.producer_id, response.producer_epoch)

    return await _at_coordinator(routes, transactional_id, ask)


async def _outcome(routes: Routes, identity: WriterIdentity, *, is_commit: bool) -> TransactionOutcome:
    """End a transaction. If it has already ended the other way, the coordinator responds with
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


async def _end(routes: Routes, identity: WriterIdentity, *, is_commit: bool) -> None:
    transactional_id, producer_id, epoch = identity
    assert transactional_id is not None
    fields = {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "committed": is_commit,
    }

    async def ask(client: BrokerConnection) -> None:
        async with asyncio.timeout(RESPONSE_SECONDS):
            check_error((await client.request(_END_TXN, _END_TXN_VERSION, fields)).error_code)

    await _at_coordinator(routes, transactional_id, ask)


async def _check_leads(client: BrokerConnection, leader: BrokerId, shards: set[tuple[int, int]]) -> None:
    """Raise BrokerError unless the broker knows that it leads these shards: otherwise it would list too few
    transactions.
    """
    fields = {
        "topics": [{"topic_id": None, "name": TRANSACTIONS_TOPIC}],
        "allow_auto_topic_creation": False,
    }
    async with asyncio.timeout(RESPONSE_SECONDS):
        answer = await client.request(_METADATA, _METADATA_VERSION, fields)
    known = {
        (each.partition_index, each.leader_epoch)
        for topic in answer.topics
        for each in topic.partitions
        if each.leader_id == leader
    }
    if not shards <= known:
        raise BrokerError(ErrorCode.not_coordinator)


async def _list(client: BrokerConnection, prefix: str) -> list[str]:
    fields = {
        "state_filters": [_ONGOING],
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": f"{prefix}.*",
    }
    async with asyncio.timeout(RESPONSE_SECONDS):
        answer = await client.request(_LIST_TRANSACTIONS, _LIST_VERSION, fields)
    check_error(answer.error_code)
    return [each.transactional_id for each in answer.transaction_states]


async def _describe(routes: Routes, transactional_id: str) -> WriterIdentity | None:
    """Producer of the open transaction; None if no transaction is open any more."""

    async def ask(client: BrokerConnection) -> WriterIdentity | None:
        async with asyncio.timeout(RESPONSE_SECONDS):
            answer = await client.request(
                _DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]}
            )
        (state,) = answer.transaction_states
        if state.error_code == ErrorCode.transactional_id_not_found or (
            not state.error_code and state.transaction_state != _ONGOING
        ):
            return None
        check_error(state.error_code)
        return WriterIdentity(transactional_id, state.producer_id, state.producer_epoch)

    return await _at_coordinator(routes, transactional_id, ask)


async def _at_coordinator(
    routes: Routes, transactional_id: str, ask: Callable[[BrokerConnection], Awaitable[T]]
) -> T:
    return await routes.at_coordinator(CoordinatorKind.TRANSACTION, transactional_id, ask, RETRY_SECONDS)


async def _for_all(items: Iterable[A], work: Callable[[A], Awaitable[T]]) -> list[T]:
    """Run `work` for all items, at most _MAX_AT_ONCE at a time."""
    gate = asyncio.Semaphore(_MAX_AT_ONCE)

    async def one(item: A) -> T:
        async with gate:
            return await work(item)

    return await asyncio.gather(*map(one, items))
