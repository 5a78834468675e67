"""What `penstock transaction` asks brokers: which transactions there are, what they are, and to abort one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from penstock.cli.failures import ExitCode, Failure
from penstock.config import parse_address
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import check_error
from penstock.internal_client.routes import CoordinatorKind, Routes
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import TcpNetwork
from penstock.wire.decoding import EPOCH

T = TypeVar("T")

PATIENCE_SECONDS = 30.0
CLIENT_ID = "penstock-cli"
HELD = "held"
_END_TXN, _END_TXN_VERSION = 26, 5
_DESCRIBE_TRANSACTIONS, _LIST_TRANSACTIONS, _LIST_VERSION = 65, 66, 1
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Described:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int | None
    """None: it is held, no timeout ends it."""
    start_ms: int | None
    partitions: dict[str, list[int]]

    @property
    def is_open(self) -> bool:
        return self.state == "Ongoing"


def ask(bootstrap: str, work: Callable[[Routes], Awaitable[T]]) -> T:
    """Ask a cluster something, in a loop of its own."""
    try:
        addresses = [parse_address(text.strip()) for text in bootstrap.split(",")]
    except ValueError as error:
        raise Failure(str(error), code=ExitCode.USAGE) from error

    async def body() -> T:
        routes = Routes(TcpNetwork(), addresses, CLIENT_ID)
        try:
            return await work(routes)
        finally:
            routes.close()

    try:
        return asyncio.run(body())
    except OSError as error:
        raise Failure(
            f"no broker answers at {bootstrap}",
            "Name one with --bootstrap HOST:PORT or PENSTOCK_BOOTSTRAP.",
        ) from error


async def transactional_ids(routes: Routes, states: Iterable[str] = ()) -> list[str]:
    """Of all brokers, sorted."""
    await routes.topics()
    fields = {"state_filters": list(states), "producer_id_filters": [], "duration_filter": -1}
    found: list[str] = []
    for broker in sorted(routes.brokers):
        client = await routes.broker(broker)
        answer = await client.request(_LIST_TRANSACTIONS, _LIST_VERSION, fields)
        check_error(answer.error_code)
        found += [each.transactional_id for each in answer.transaction_states]
    return sorted(found)


async def describe(routes: Routes, transactional_id: str) -> Described:
    found = await _find(routes, transactional_id)
    if found is None:
        raise Failure(
            f"there is no transactional id {transactional_id!r}", "`penstock transaction list` shows them."
        )
    return found


async def describe_all(routes: Routes, ids: Iterable[str]) -> list[Described]:
    """Without those that were forgotten meanwhile."""
    found = [await _find(routes, transactional_id) for transactional_id in ids]
    return [each for each in found if each is not None]


async def _find(routes: Routes, transactional_id: str) -> Described | None:
    async def ask_client(client: BrokerConnection) -> Any:
        answer = await client.request(_DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]})
        (state,) = answer.transaction_states
        check_error(state.error_code)
        return state

    try:
        state = await routes.at_coordinator(
            CoordinatorKind.TRANSACTION, transactional_id, ask_client, PATIENCE_SECONDS
        )
    except BrokerError as error:
        if error.code is ErrorCode.transactional_id_not_found:
            return None
        raise Failure(f"{transactional_id} could not be described: {error.code.name}") from error
    timeout_ms, start_ms = (
        state.transaction_timeout // _MILLISECOND,
        (state.transaction_start_time - EPOCH) // _MILLISECOND,
    )
    return Described(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        None if timeout_ms < 0 else timeout_ms,
        None if start_ms < 0 else start_ms,
        {topic.topic: list(topic.partitions) for topic in state.topics},
    )


async def abort(routes: Routes, described: Described) -> None:
    """As its producer could: with its id, producer id and epoch. The producer is fenced."""

    async def ask_client(client: BrokerConnection) -> None:
        fields = {
            "transactional_id": described.transactional_id,
            "producer_id": described.producer_id,
            "producer_epoch": described.producer_epoch,
            "committed": False,
        }
        check_error((await client.request(_END_TXN, _END_TXN_VERSION, fields)).error_code)

    try:
        await routes.at_coordinator(
            CoordinatorKind.TRANSACTION, described.transactional_id, ask_client, PATIENCE_SECONDS
        )
    except BrokerError as error:
        raise Failure(f"{described.transactional_id} was not aborted: {error.code.name}") from error
