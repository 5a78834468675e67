"""What is asked of the coordinator of a group, whichever broker that is: heartbeats, commits, offsets, members.

Every question may be asked again, so all are, while the coordinator moves or loads; BrokerError or OSError once
patience is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock.errors import ErrorCode
from penstock.net.client import Client
from penstock.net.routes import CoordinatorKind, Routes, check

_HEARTBEAT, _HEARTBEAT_VERSION = 68, 1
# By topic id: offsets of a topic that is gone must not become those of one with its name.
_OFFSET_COMMIT, _OFFSET_COMMIT_VERSION = 8, 10
_OFFSET_FETCH, _OFFSET_FETCH_VERSION = 9, 10
_DESCRIBE, _DESCRIBE_VERSION = 69, 0
_AS_BEFORE_MS = -1
_ANSWER_SECONDS = 10.0
_PATIENCE_SECONDS = 20.0

_SAID_PLAINER = {
    ErrorCode.unstable_offset_commit: ErrorCode.concurrent_transactions,
    ErrorCode.unknown_topic_id: ErrorCode.unknown_topic_or_partition,
}
"""A transaction is about to decide, so it is worth asking again; a topic that is gone does not come back."""

Assignment = Mapping[UUID, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Member:
    group: str
    id: str
    epoch: int

    @classmethod
    def nobody(cls, group: str) -> Member:
        """Who commits for a group that has no members."""
        return cls(group, "", -1)


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a member says of itself when it joins, and whenever it cannot know what was heard of it."""

    rebalance_timeout_ms: int
    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    member_epoch: int
    interval_seconds: float
    assignment: Assignment | None
    """What it should own; None: as before."""


class GroupCoordinator:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def heartbeat(
        self, member: Member, introduction: Introduction | None, owned: Assignment | None
    ) -> HeartbeatAnswer:
        fields: dict[str, Any] = {
            "group_id": member.group,
            "member_id": member.id,
            "member_epoch": member.epoch,
            "rebalance_timeout": _AS_BEFORE_MS if introduction is None else introduction.rebalance_timeout_ms,
            "subscribed_topic_names": None if introduction is None else list(introduction.topics),
            "topic_partitions": None if owned is None else _fields_of(owned),
        }
        answer = await self._ask(member.group, _HEARTBEAT, _HEARTBEAT_VERSION, fields)
        assignment = answer.assignment
        return HeartbeatAnswer(
            answer.member_epoch,
            answer.heartbeat_interval.total_seconds(),
            None if assignment is None else _assignment_of(assignment.topic_partitions),
        )

    async def commit(self, member: Member, topic: UUID, offsets: Mapping[int, int]) -> None:
        """All of them, or the first error."""
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
        await self._ask(member.group, _OFFSET_COMMIT, _OFFSET_COMMIT_VERSION, fields)

    async def committed(self, member: Member, topic: UUID, partitions: Sequence[int]) -> dict[int, int]:
        """The offsets that the group has; partitions without one are left out."""
        group = {
            "group_id": member.group,
            "member_id": member.id or None,
            "member_epoch": member.epoch,
            "topics": [{"topic_id": topic, "partition_indexes": list(partitions)}],
        }
        fields = {"groups": [group], "require_stable": True}
        answer = await self._ask(member.group, _OFFSET_FETCH, _OFFSET_FETCH_VERSION, fields)
        found = answer.groups[0].topics
        return {
            each.partition_index: each.committed_offset
            for each in (found[0].partitions if found else ())
            if each.committed_offset >= 0
        }

    async def owners(self, group: str, topic: UUID, client_id: str) -> dict[int, Member]:
        """Who of the new protocol's members with this client id owns which partition."""
        fields = {"group_ids": [group], "include_authorized_operations": False}
        answer = await self._ask(group, _DESCRIBE, _DESCRIBE_VERSION, fields)
        return {
            partition: Member(group, member.member_id, member.member_epoch)
            for member in answer.groups[0].members
            if member.client_id == client_id
            for assigned in member.assignment.topic_partitions
            if assigned.topic_id == topic
            for partition in assigned.partitions
        }

    async def _ask(self, group: str, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        async def ask(client: Client) -> Any:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await client.request(api_key, version, fields)
            _check(answer)
            return answer

        return await self._routes.at_coordinator(CoordinatorKind.GROUP, group, ask, _PATIENCE_SECONDS)


def _check(answer: Any) -> None:
    check(getattr(answer, "error_code", 0), getattr(answer, "error_message", None))
    for group in getattr(answer, "groups", ()):
        _check(group)
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partitions:
            check(_SAID_PLAINER.get(partition.error_code, partition.error_code))


def _fields_of(assignment: Assignment) -> list[dict[str, Any]]:
    return [{"topic_id": topic, "partitions": sorted(of_topic)} for topic, of_topic in assignment.items()]


def _assignment_of(topics: Sequence[Any]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}
