"""KnownTransactions: a partition leader asks which of its open transactions the coordinator on this broker knows and
will end.

A private API: only brokers of this cluster may send it.
"""

from __future__ import annotations

import asyncio

from penstock.errors import ErrorCode
from penstock.net.response import Answer, PendingResponse
from penstock.server.dispatch import Api, Request
from penstock.wire.apis import KNOWN_TRANSACTIONS
from penstock.wire.known_transactions import (
    KnownTransactions,
    OpenTransaction,
    decode_known_transactions_request,
    encode_known_transactions_response,
)


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    asked = decode_known_transactions_request(frame, position)
    correlation_id = request.header.correlation_id
    if request.session.broker_id is None:
        refused = KnownTransactions(ErrorCode.cluster_authorization_failed)
        return [encode_known_transactions_response(correlation_id, refused)]
    later = PendingResponse()
    working = asyncio.ensure_future(_answer(request, asked, later))
    later.when_abandoned(lambda: _cancel(working))
    return later


API = Api(KNOWN_TRANSACTIONS, 0, 0, handle_raw=handle)


def _cancel(working: asyncio.Task[None]) -> None:
    working.cancel()


async def _answer(request: Request, asked: tuple[OpenTransaction, ...], later: PendingResponse) -> None:
    try:
        answer = await request.context.transactions.known(asked)
        later.resolve([encode_known_transactions_response(request.header.correlation_id, answer)])
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not leave the connection waiting for ever
        later.fail(error)
