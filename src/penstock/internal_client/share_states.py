"""The requests about states of share-partitions that one broker sends to another (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import ClientApi, check_error
from penstock.net.broker_connection import BrokerConnection

_INITIALIZE = ClientApi(83, 0)
_READ = ClientApi(84, 0)
_WRITE = ClientApi(85, 1)
_DELETE = ClientApi(86, 0)
_SUMMARY = ClientApi(87, 1)

Batch = tuple[int, int, int, int]
"""First offset, last offset, state and delivery count."""


class SharePlace(NamedTuple):
    """A share-partition as requests name it."""

    group_id: str
    topic_id: UUID
    partition: int


async def initialize_share_group_state(
    connection: BrokerConnection, place: SharePlace, state_epoch: int, start_offset: int
) -> None:
    fields = {"state_epoch": state_epoch, "start_offset": start_offset}
    await _call(_INITIALIZE, connection, place, fields)


async def read_share_group_state(
    connection: BrokerConnection, place: SharePlace, leader_epoch: int
) -> tuple[int, int, list[Batch]]:
    """Return state epoch, start offset and batches."""
    result = await _call(_READ, connection, place, {"leader_epoch": leader_epoch})
    batches = [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in result.state_batches
    ]
    return result.state_epoch, result.start_offset, batches


async def write_share_group_state(
    connection: BrokerConnection,
    place: SharePlace,
    epochs: tuple[int, int],
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[Batch],
) -> None:
    """`epochs` are the state epoch and the leader epoch."""
    fields = {
        "state_epoch": epochs[0],
        "leader_epoch": epochs[1],
        "start_offset": start_offset,
        "delivery_complete_count": delivery_complete_count,
        "state_batches": [
            {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}
            for first, last, state, count in batches
        ],
    }
    await _call(_WRITE, connection, place, fields)


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
    raise BrokerError(ErrorCode.coordinator_not_available, "the coordinator left out the share-partition")
