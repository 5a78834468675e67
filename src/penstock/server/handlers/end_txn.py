"""EndTxn: commits or aborts a transaction. From version 5 on the response has the producer id and epoch for the next
transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import Parts, PendingResponse
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.settled_response import SettledResponse
from penstock.server.handlers.transaction_requests import producer_of, shard_for, told
from penstock.server.security import Operation
from penstock.transactions.transaction import NOBODY, VERSION_1, VERSION_2, Identity
from penstock.wire.end_txn import END_TXN, EndTxnRequest, decode_end_txn, encode_end_txn_response

FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_WITH_EPOCH = 5


def handle(request: Request, message: EndTxnRequest) -> Parts | PendingResponse | Awaitable[Fields]:
    version = VERSION_2 if request.version >= FIRST_VERSION_WITH_EPOCH else VERSION_1
    transactional_id = message.transactional_id
    try:
        shard = shard_for(request, Operation.WRITE, transactional_id)
        asking = producer_of(message)
        if version < VERSION_2:
            shard.check_connection(transactional_id, asking, request.session.number)
    except BrokerError as error:
        return [_Response(request, NOBODY).encode(error.code)]
    decided = shard.plain_end(transactional_id, asking, message.committed, version)
    if decided is None:
        return _answer(request, shard.end(transactional_id, asking, message.committed, version))
    response = _Response(request, decided.successor)
    shard.record_at_once(transactional_id, decided, response)
    return response.answer


API = Api(END_TXN, 0, 5, handle, decode=decode_end_txn)


class _Response(SettledResponse):
    __slots__ = ("_producer", "_request")

    def __init__(self, request: Request, producer: Identity) -> None:
        super().__init__()
        self._request = request
        self._producer = producer

    def encode(self, outcome: ErrorCode) -> bytes:
        header = self._request.header
        producer = self._producer if outcome is ErrorCode.none else NOBODY
        code = told(outcome, header.api_version, FIRST_VERSION_WITH_FENCED)
        return encode_end_txn_response(header.correlation_id, header.api_version, code, *producer)


async def _answer(request: Request, ending: Awaitable[Identity]) -> Fields:
    producer, code = NOBODY, ErrorCode.none
    try:
        producer = await ending
    except BrokerError as error:
        code = told(error.code, request.version, FIRST_VERSION_WITH_FENCED)
    return {
        "throttle_time": NO_TIME,
        "error_code": code,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
