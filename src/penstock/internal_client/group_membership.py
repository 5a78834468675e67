"""Requests of a member of a consumer group (KIP-848) to its coordinator: heartbeats, commits, committed
offsets, other members.

Every request may be sent twice, and is retried while the coordinator changes or loads. Topics are named by
id, so that offsets of a deleted topic never become those of a new topic of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock.errors import ErrorCode
from penstock.internal_client.api import ClientApi, check_error
from penstock.internal_client.routes import CoordinatorKind, Routes
from penstock.net.broker_connection import BrokerConnection

_OFFSET_COMMIT = ClientApi(8, 10)
_OFFSET_FETCH = ClientApi(9, 10)
_CONSUMER_GROUP_HEARTBEAT = ClientApi(68, 1)
_CONSUMER_GROUP_DESCRIBE = ClientApi(69, 0)
_UNCHANGED_MS = -1
_RESPONSE_SECONDS = 10.0
_PATIENCE_SECONDS = 20.0

_TRANSLATED = {
    ErrorCode.unstable_offset_commit: ErrorCode.concurrent_transactions,
    ErrorCode.unknown_topic_id: ErrorCode.unknown_topic_or_partition,
}
"""Error codes and their replacements. UNSTABLE_OFFSET_COMMIT is retriable: an open transaction has pending
offsets. UNKNOWN_TOPIC_ID is final: the topic was deleted.
"""

Assignment = Mapping[UUID, frozenset[int]]


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    group: str
    id: str
    epoch: int

    @classmethod
    def nobody(cls, group: str) -> MemberIdentity:
        """Identity that commits offsets for a group without members."""
        return cls(group, "", -1)


@dataclass(frozen=True, slots=True)
class HeartbeatSubscription:
    """Fields of a heartbeat that a member sends when it joins and after a heartbeat whose response was lost."""

    rebalance_timeout_ms: int
    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    member_epoch: int
    interval_seconds: float
    assignment: Assignment | None
    """Partitions that the member should own; None if they have not changed."""


class GroupMembership:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def heartbeat(
        self, member: MemberIdentity, subscription: HeartbeatSubscription | None, owned: Assignment | None
    ) -> HeartbeatResponse:
        """Send a heartbeat. An argument that is None has not changed since the last heartbeat."""
        fields: dict[str, Any] = {
            "group_id": member.group,
            "member_id": member.id,
            "member_epoch": member.epoch,
            "rebalance_timeout": _UNCHANGED_MS if subscription is None else subscription.rebalance_timeout_ms,
            "subscribed_topic_names": None if subscription is None else list(subscription.topics),
            "topic_partitions": None if owned is None else _fields_of(owned),
        }
        response = await self._call(member.group, _CONSUMER_GROUP_HEARTBEAT, fields)
        assignment = response.assignment
        return HeartbeatResponse(
            response.member_epoch,
            response.heartbeat_interval.total_seconds(),
            None if assignment is None else _assignment_of(assignment.topic_partitions),
        )

    async def commit(self, member: MemberIdentity, topic: UUID, offsets: Mapping[int, int]) -> None:
        """Commit offsets by partition. Raises the first error."""
        partitions = [
            {"partition_index": partition, "committed_offset": offset}
            for partition, offset in offsets.items()
        ]
        fields = {
            "group_id": member.group,
            "member_id": member.id,
            "generation_id_or_member_epoch": member.epoch,
            "topics": [{"topic_id": topic, "partitions": partitions}],
        }
        await self._call(member.group, _OFFSET_COMMIT, fields)

    async def committed(
        self, member: MemberIdentity, topic: UUID, partitions: Sequence[int]
    ) -> dict[int, int]:
        """Return the group's committed offsets by partition. Partitions without one are left out."""
        group = {
            "group_id": member.group,
            "member_id": member.id or None,
            "member_epoch": member.epoch,
            "topics": [{"topic_id": topic, "partition_indexes": list(partitions)}],
        }
        fields = {"groups": [group], "require_stable": True}
        response = await self._call(member.group, _OFFSET_FETCH, fields)
        found = response.groups[0].topics
        return {
            each.partition_index: each.committed_offset
            for each in (found[0].partitions if found else ())
            if each.committed_offset >= 0
        }

    async def owners(self, group: str, topic: UUID, client_id: str) -> dict[int, MemberIdentity]:
        """Return the owner of each partition, for the partitions whose owner has this client id."""
        fields = {"group_ids": [group], "include_authorized_operations": False}
        response = await self._call(group, _CONSUMER_GROUP_DESCRIBE, fields)
        return {
            partition: MemberIdentity(group, member.member_id, member.member_epoch)
            for member in response.groups[0].members
            if member.client_id == client_id
            for assigned in member.assignment.topic_partitions
            if assigned.topic_id == topic
            for partition in assigned.partitions
        }

    async def _call(self, group: str, api: ClientApi, fields: Mapping[str, Any]) -> Any:
        async def request(connection: BrokerConnection) -> Any:
            response = await api.call(connection, fields, _RESPONSE_SECONDS)
            _check(response)
            return response

        return await self._routes.at_coordinator(CoordinatorKind.GROUP, group, request, _PATIENCE_SECONDS)


def _check(response: Any) -> None:
    check_error(getattr(response, "error_code", 0), getattr(response, "error_message", None))
    for group in getattr(response, "groups", ()):
        _check(group)
    for topic in getattr(response, "topics", ()):
        for partition in topic.partitions:
            check_error(_TRANSLATED.get(partition.error_code, partition.error_code))


def _fields_of(assignment: Assignment) -> list[dict[str, Any]]:
    return [{"topic_id": topic, "partitions": sorted(of_topic)} for topic, of_topic in assignment.items()]


def _assignment_of(topics: Sequence[Any]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}
