"""ShareState: the leader of a partition reads or writes the state of a share-partition. A private API, only for
brokers.
"""

from __future__ import annotations

import asyncio

from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.model import ShareKey, TopicId
from penstock.net.response import Answer, PendingResponse
from penstock.queues.record_codec import decode_value, encode_value
from penstock.queues.records import UpdateValue
from penstock.queues.states import StateUpdate
from penstock.server.dispatch import Api, Request
from penstock.wire.apis import SHARE_STATE
from penstock.wire.share_state import (
    ShareStateRequest,
    ShareStateResponse,
    decode_share_state_request,
    encode_share_state_response,
)


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    asked = decode_share_state_request(frame, position)
    later = PendingResponse()
    working = asyncio.ensure_future(_respond(request, asked, later))
    later.when_abandoned(lambda: _cancel(working))
    return later


API = Api(SHARE_STATE, 0, 0, handle_raw=handle)


def _cancel(working: asyncio.Task[None]) -> None:
    working.cancel()


async def _respond(request: Request, asked: ShareStateRequest, later: PendingResponse) -> None:
    try:
        response = ShareStateResponse(snapshot=await _work(request, asked))
    except BrokerError as error:
        response = ShareStateResponse(error.code, str(error)[:500])
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not leave the connection waiting for ever
        later.fail(error)
        return
    later.resolve([encode_share_state_response(request.header.correlation_id, response)])


async def _work(request: Request, asked: ShareStateRequest) -> bytes:
    if request.session.broker_id is None:
        raise BrokerError(
            ErrorCode.cluster_authorization_failed,
            "only brokers may read or write the states of share-partitions",
        )
    key = ShareKey(asked.group_id, TopicId(asked.topic_id), asked.partition)
    shard = request.context.share.coordinator.shard_of(key)
    if not asked.update:
        return encode_value(await shard.read_snapshot(key, asked.leader_epoch))
    try:
        value = decode_value(asked.update)
    except ProtocolError as error:
        raise BrokerError(ErrorCode.invalid_request, str(error)) from None
    if not isinstance(value, UpdateValue):
        raise BrokerError(ErrorCode.invalid_request, "the request has a snapshot of the state, not an update")
    update = StateUpdate(
        value.start_offset, value.delivery_complete_count, list(value.batches), value.letters
    )
    await shard.store(key, asked.state_epoch, asked.leader_epoch, update)
    return b""
