"""Requests about states of share-partitions that one broker sends to another (KIP-932)."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from uuid import UUID

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import RESPONSE_SECONDS, ClientApi, check_error
from penstock.net.broker_connection import BrokerConnection
from penstock.wire.share_state import (
    ShareStateRequest,
    decode_share_state_response,
    encode_share_state_request,
)

_INITIALIZE = ClientApi(83, 0)
_DELETE = ClientApi(86, 0)
_SUMMARY = ClientApi(87, 1)


class SharePlace(NamedTuple):
    """Key of a share-partition in requests."""

    group_id: str
    topic_id: UUID
    partition: int


async def initialize_share_group_state(
    connection: BrokerConnection, place: SharePlace, state_epoch: int, start_offset: int
) -> None:
    fields = {"state_epoch": state_epoch, "start_offset": start_offset}
    await _call(_INITIALIZE, connection, place, fields)


async def exchange_share_state(connection: BrokerConnection, request: ShareStateRequest) -> bytes:
    """Read a state or store an update of it. Returns the encoded snapshot that was read."""
    correlation_id = connection.next_correlation_id()
    frame = encode_share_state_request(correlation_id, connection.client_id, request)
    async with asyncio.timeout(RESPONSE_SECONDS):
        response = decode_share_state_response(await connection.exchange(correlation_id, frame))
    check_error(response.error_code, response.error_message)
    return response.snapshot


async def delete_share_group_state(connection: BrokerConnection, place: SharePlace) -> None:
    await _call(_DELETE, connection, place, {})


async def read_share_group_state_summary(
    connection: BrokerConnection, place: SharePlace
) -> tuple[int, int, int, int]:
    """Return state epoch, leader epoch, start offset and delivery-complete count."""
    result = await _call(_SUMMARY, connection, place, {"leader_epoch": -1})
    return result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count


async def _call(
    api: ClientApi, connection: BrokerConnection, place: SharePlace, fields: dict[str, Any]
) -> Any:
    partition = {"partition": place.partition, **fields}
    topics = [{"topic_id": place.topic_id, "partitions": [partition]}]
    response = await api.call(connection, {"group_id": place.group_id, "topics": topics})
    for topic in response.results:
        for result in topic.partitions:
            if topic.topic_id == place.topic_id and result.partition == place.partition:
                check_error(result.error_code, result.error_message)
                return result
    raise BrokerError(
        ErrorCode.coordinator_not_available, "the response of the coordinator lacks the share-partition"
    )
