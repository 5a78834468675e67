"""EndTxn: commit or abort a transaction. From version 5 on the response has the producer id and epoch of the
next one.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.transaction_requests import producer_of, shard_for, told
from penstock.server.security import Operation
from penstock.transactions.transaction import NOBODY, VERSION_1, VERSION_2, Identity

FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_WITH_EPOCH = 5


def handle(request: Request, message: Any) -> Fields | Awaitable[Fields]:
    version = VERSION_2 if request.version >= FIRST_VERSION_WITH_EPOCH else VERSION_1
    try:
        shard = shard_for(request, Operation.WRITE, message.transactional_id)
        asking = producer_of(message)
        if version < VERSION_2:
            shard.check_connection(message.transactional_id, asking, request.session.number)
        begun = shard.end_at_once(message.transactional_id, asking, message.committed, version)
        if begun is None:
            return _answer(request, shard.end(message.transactional_id, asking, message.committed, version))
        recorded, producer = begun
        if not recorded.done():
            return _answer(request, _when_recorded(recorded, producer))
        recorded.result()
        return _fields(producer, ErrorCode.none)
    except BrokerError as error:
        return _fields(NOBODY, told(error.code, request.version, FIRST_VERSION_WITH_FENCED))


API = Api(26, 0, 5, handle)


async def _answer(request: Request, ending: Awaitable[Identity]) -> Fields:
    try:
        return _fields(await ending, ErrorCode.none)
    except BrokerError as error:
        return _fields(NOBODY, told(error.code, request.version, FIRST_VERSION_WITH_FENCED))


async def _when_recorded(recorded: Awaitable[None], producer: Identity) -> Identity:
    await recorded
    return producer


def _fields(producer: Identity, code: ErrorCode) -> Fields:
    return {
        "throttle_time": NO_TIME,
        "error_code": code,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
