"""Share groups of a cluster (KIP-932): members, start offsets, lag, records in flight, and reset of start offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.internal_client.api import ClientApi, check_error
from penstock.internal_client.groups import SHARE as SHARE
from penstock.internal_client.routes import CoordinatorKind, Routes
from penstock.model import QUEUE_INITIALIZER
from penstock.net.broker_connection import BrokerConnection
from penstock.wire.share_status import (
    ShareStatus,
    decode_share_status_response,
    encode_share_status_request,
)

_HEARTBEAT = ClientApi(76, 1)
_DESCRIBE = ClientApi(77, 1)
_DESCRIBE_OFFSETS = ClientApi(90, 1)
_ALTER_OFFSETS = ClientApi(91, 0)


@dataclass(frozen=True, slots=True)
class ShareMemberSummary:
    id: str
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """Start offset and lag of a partition; None if they are unknown."""

    topic: str
    partition: int
    start_offset: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class ShareGroupDetails:
    id: str
    state: str
    members: tuple[ShareMemberSummary, ...]
    offsets: tuple[ShareGroupOffset, ...]


class ShareGroupCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def describe(self, group: str) -> ShareGroupDetails:
        """Describe members, offsets and lag. Raises GROUP_ID_NOT_FOUND if the group does not exist."""
        fields = {"group_ids": [group], "include_authorized_operations": False}
        response = await self._call(group, _DESCRIBE, fields, lambda each: each.groups[0])
        members = tuple(
            ShareMemberSummary(each.member_id, each.client_id, each.client_host, _places(each))
            for each in response.members
        )
        return ShareGroupDetails(group, response.group_state, members, await self.offsets(group))

    async def offsets(self, group: str) -> tuple[ShareGroupOffset, ...]:
        fields = {"groups": [{"group_id": group, "topics": None}]}
        response = await self._call(group, _DESCRIBE_OFFSETS, fields, lambda each: each.groups[0])
        return tuple(
            ShareGroupOffset(
                topic.topic_name, each.partition_index, _known(each.start_offset), _known(each.lag)
            )
            for topic in response.topics
            for each in topic.partitions
        )

    async def status(self, group: str) -> list[ShareStatus]:
        """Records in flight of the group's partitions that brokers serve at present."""

        async def ask(connection: BrokerConnection) -> list[ShareStatus]:
            correlation_id = connection.next_correlation_id()
            frame = encode_share_status_request(correlation_id, connection.client_id, group)
            code, found = decode_share_status_response(await connection.exchange(correlation_id, frame))
            check_error(code)
            return found

        return [each for some in await self._routes.at_all(ask) for each in some]

    async def reset(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Reset start offsets of a group without members. Raises NON_EMPTY_GROUP if it has members."""
        by_topic: dict[str, list[dict[str, int]]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, []).append({"partition_index": partition, "start_offset": offset})
        topics = [{"topic_name": topic, "partitions": each} for topic, each in by_topic.items()]
        # Errors of partitions are raised within the request, so that it is repeated while a coordinator
        # loads.
        await self._call(group, _ALTER_OFFSETS, {"group_id": group, "topics": topics}, _without_errors)

    async def initialize(self, group: str, topic: str) -> None:
        """Create the states of the topic's partitions that the group has not read yet. Existing states stay.

        Raises GROUP_ID_NOT_FOUND if the group does not exist, because the queue was deleted.
        """
        fields = {"group_id": group, "member_id": QUEUE_INITIALIZER, "rack_id": None}
        join = {**fields, "member_epoch": 0, "subscribed_topic_names": [topic]}
        await self._call(group, _HEARTBEAT, join, lambda each: each)

    async def _call(self, group: str, api: ClientApi, fields: Mapping[str, Any], part: Any) -> Any:
        async def request(connection: BrokerConnection) -> Any:
            found = part(await api.call(connection, fields))
            check_error(found.error_code, found.error_message)
            return found

        return await self._routes.at_coordinator(CoordinatorKind.GROUP, group, request)


def _without_errors(response: Any) -> Any:
    for topic in response.responses:
        for each in topic.partitions:
            check_error(each.error_code, each.error_message)
    return response


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset


def _places(member: Any) -> tuple[tuple[str, int], ...]:
    return tuple(
        (topic.topic_name, partition)
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    )
