"""Consumer groups of a cluster, at their coordinators: list, describe, delete, and read or reset committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from struct import Struct, error
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import ClientApi, check_error
from penstock.internal_client.records import EARLIEST, LATEST, RecordCalls
from penstock.internal_client.routes import CoordinatorKind, Routes
from penstock.net.broker_connection import BrokerConnection

_OFFSET_COMMIT = ClientApi(8, 9)
_OFFSET_FETCH = ClientApi(9, 9)
_DESCRIBE_GROUPS = ClientApi(15, 5)
_LIST_GROUPS = ClientApi(16, 5)
_DELETE_GROUPS = ClientApi(42, 2)
_OFFSET_DELETE = ClientApi(47, 0)
_LEAVE_GROUP = ClientApi(13, 5)
_CONSUMER_GROUP_HEARTBEAT = ClientApi(68, 1)
_CONSUMER_GROUP_DESCRIBE = ClientApi(69, 1)
_NO_MEMBER_EPOCH = -1
_CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
_COUNT, _LENGTH = Struct(">i"), Struct(">h")


@dataclass(frozen=True, slots=True)
class GroupSummary:
    id: str
    type: str
    """Protocol of the group: `classic` or `consumer`."""
    state: str
    protocol_type: str = CONSUMER
    """Protocol type: `consumer`, empty for a group that only commits offsets, or the name that the members
    have chosen.
    """


@dataclass(frozen=True, slots=True)
class GroupMemberSummary:
    id: str
    client_id: str
    host: str
    partitions: Mapping[str, tuple[int, ...]]
    """Indexes of the assigned partitions by topic."""
    instance_id: str | None = None
    """`group.instance.id` of a static member; None for a dynamic member."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    topic: str
    partition: int
    committed: int | None
    log_start: int
    log_end: int

    @property
    def lag(self) -> int:
        """Number of offsets from the committed offset, or from the log start if there is none, to the log end."""
        return max(0, self.log_end - (self.log_start if self.committed is None else self.committed))


@dataclass(frozen=True, slots=True)
class GroupDetails:
    summary: GroupSummary
    members: tuple[GroupMemberSummary, ...]
    assignor: str
    offsets: tuple[GroupOffset, ...] = ()


class GroupCalls:
    def __init__(self, routes: Routes, records: RecordCalls) -> None:
        self._routes = routes
        self._records = records

    async def all(self) -> Sequence[GroupSummary]:
        """List the groups of all coordinators, sorted by id."""
        found = await self._routes.at_all(_list_groups)
        return sorted((each for some in found for each in some), key=lambda each: each.id)

    async def describe(self, group: str) -> GroupDetails:
        """Describe the members and the lag of a group of either protocol. Raises GROUP_ID_NOT_FOUND if it
        does not exist.
        """
        found = await self.describe_members(group)
        if found.summary.protocol_type == SHARE:
            return found  # A share group has no committed offsets.
        return replace(found, offsets=await self._offsets(group, found.members))

    async def describe_members(self, group: str) -> GroupDetails:
        """Describe a group of either protocol without its offsets. Raises GROUP_ID_NOT_FOUND if it does not exist."""
        try:
            return await self._describe_consumer(group)
        except BrokerError as problem:
            if problem.code is not ErrorCode.group_id_not_found:
                raise
            return await self._describe_classic(group)

    async def all_committed(self, group: str) -> dict[str, dict[int, int]]:
        """Return all committed offsets of a group, by topic and partition."""
        return await self._fetch_offsets(group, None, require_stable=False)

    async def committed(
        self, group: str, topic: str, partitions: Sequence[int], *, require_stable: bool = False
    ) -> dict[int, int]:
        """Return the committed offsets of these partitions. Partitions without one are left out.

        With `require_stable`, wait until no open transaction has pending offsets for these partitions.
        """
        found = await self._fetch_offsets(
            group, [{"name": topic, "partition_indexes": list(partitions)}], require_stable
        )
        return found.get(topic, {})

    async def reset(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets for a group without members. Raises NON_EMPTY_GROUP if it has members."""
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            )
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": _NO_MEMBER_EPOCH,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": each} for topic, each in by_topic.items()],
        }
        await self._call(group, _OFFSET_COMMIT, fields, _check_reset)

    async def delete(self, group: str) -> None:
        """Delete a group without members, together with its committed offsets."""
        await self._call(
            group, _DELETE_GROUPS, {"groups_names": [group]}, lambda response: _checked(response.results[0])
        )

    async def delete_offsets(self, group: str, topic: str) -> None:
        """Delete the committed offsets of a topic. Raises GROUP_SUBSCRIBED_TO_TOPIC if a member reads it."""
        partitions = (await self.all_committed(group)).get(topic, {})
        if not partitions:
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition,
                f"group {group[:80]!r} has no committed offsets of {topic}",
            )
        named = [{"partition_index": partition} for partition in partitions]
        fields = {"group_id": group, "topics": [{"name": topic, "partitions": named}]}
        await self._call(group, _OFFSET_DELETE, fields, _check_deleted)

    async def remove_member(self, group: str, member_id: str) -> None:
        """Remove a member from a group of either protocol. Raises UNKNOWN_MEMBER_ID if there is no such member."""
        found = await self.describe_members(group)
        member = next((each for each in found.members if each.id == member_id), None)
        if member is None:
            raise BrokerError(
                ErrorCode.unknown_member_id, f"group {group[:80]!r} has no member {member_id[:80]!r}"
            )
        if found.summary.type == CONSUMER:
            leaving = {"group_id": group, "member_id": member_id, "member_epoch": _NO_MEMBER_EPOCH}
            await self._call(group, _CONSUMER_GROUP_HEARTBEAT, leaving, _checked)
            return
        named = {"member_id": member_id, "group_instance_id": member.instance_id, "reason": "removed"}
        await self._call(
            group,
            _LEAVE_GROUP,
            {"group_id": group, "members": [named]},
            lambda response: _checked(response.members[0] if response.members else response),
        )

    async def _describe_consumer(self, group: str) -> GroupDetails:
        described = await self._call(
            group,
            _CONSUMER_GROUP_DESCRIBE,
            {"group_ids": [group], "include_authorized_operations": False},
            lambda response: _checked(response.groups[0]),
        )
        members = tuple(_member(each) for each in described.members)
        summary = GroupSummary(group, CONSUMER, described.group_state)
        return GroupDetails(summary, members, described.assignor_name)

    async def _describe_classic(self, group: str) -> GroupDetails:
        described = await self._call(
            group,
            _DESCRIBE_GROUPS,
            {"groups": [group], "include_authorized_operations": False},
            lambda response: _checked(response.groups[0]),
        )
        if described.group_state == "Dead":
            raise BrokerError(ErrorCode.group_id_not_found, f"there is no group {group[:80]!r}")
        members = tuple(_classic_member(each) for each in described.members)
        summary = GroupSummary(group, _CLASSIC, described.group_state, described.protocol_type)
        return GroupDetails(summary, members, described.protocol_data)

    async def _offsets(self, group: str, members: Sequence[GroupMemberSummary]) -> tuple[GroupOffset, ...]:
        """Return offset and lag of every partition of the topics that have a committed offset or an assigned
        partition.
        """
        committed: dict[str, dict[int, int]] = {
            topic: {} for member in members for topic in member.partitions
        }
        committed |= await self.all_committed(group)
        found = await asyncio.gather(*(self._offsets_of_topic(*each) for each in committed.items()))
        return tuple(each for of_topic in found for each in of_topic)

    async def _offsets_of_topic(self, topic: str, committed: Mapping[int, int]) -> list[GroupOffset]:
        try:
            partitions = range(len((await self._routes.topic(topic)).partitions))
            starts, ends = await asyncio.gather(
                self._records.offsets(topic, partitions, EARLIEST),
                self._records.offsets(topic, partitions, LATEST),
            )
        except BrokerError as problem:
            if problem.code is not ErrorCode.unknown_topic_or_partition:
                raise
            # The topic was deleted, so none of its records is left to read.
            return [
                GroupOffset(topic, number, offset, offset, offset) for number, offset in committed.items()
            ]
        return [
            GroupOffset(topic, number, committed.get(number), starts[number], ends[number])
            for number in partitions
        ]

    async def _fetch_offsets(
        self, group: str, topics: Sequence[Mapping[str, Any]] | None, require_stable: bool
    ) -> dict[str, dict[int, int]]:
        """Fetch committed offsets by topic and partition, of these topics or, if `topics` is None, of all."""
        wanted = {"group_id": group, "member_id": None, "member_epoch": _NO_MEMBER_EPOCH, "topics": topics}
        fields = {"groups": [wanted], "require_stable": require_stable}
        response = await self._call(group, _OFFSET_FETCH, fields, _check_fetched)
        return {
            topic.name: {
                each.partition_index: each.committed_offset
                for each in topic.partitions
                if each.committed_offset >= 0
            }
            for topic in response.topics
        }

    async def _call(
        self, group: str, api: ClientApi, fields: Mapping[str, Any], check: Callable[[Any], Any]
    ) -> Any:
        async def request(connection: BrokerConnection) -> Any:
            return check(await api.call(connection, fields))

        return await self._routes.at_coordinator(CoordinatorKind.GROUP, group, request)


async def _list_groups(connection: BrokerConnection) -> list[GroupSummary]:
    response = await _LIST_GROUPS.call(connection, {"states_filter": (), "types_filter": ()})
    check_error(response.error_code)
    return [
        GroupSummary(each.group_id, each.group_type or _CLASSIC, each.group_state, each.protocol_type)
        for each in response.groups
    ]


def _checked(result: Any) -> Any:
    check_error(result.error_code, getattr(result, "error_message", None))
    return result


def _check_fetched(response: Any) -> Any:
    group = _checked(response.groups[0])
    for topic in group.topics:
        for each in topic.partitions:
            if each.error_code == ErrorCode.unstable_offset_commit:
                # A transaction is about to decide on the offset, which is retriable.
                raise BrokerError(ErrorCode.concurrent_transactions)
            check_error(each.error_code)
    return group


def _check_reset(response: Any) -> None:
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code in (ErrorCode.unknown_member_id, ErrorCode.rebalance_in_progress):
                raise BrokerError(
                    ErrorCode.non_empty_group, "the group has members; stop them to reset its offsets"
                )
            check_error(each.error_code)


def _check_deleted(response: Any) -> None:
    check_error(response.error_code)
    for topic in response.topics:
        for each in topic.partitions:
            check_error(each.error_code)


def _member(member: Any) -> GroupMemberSummary:
    partitions = {
        topic.topic_name: tuple(sorted(topic.partitions)) for topic in member.assignment.topic_partitions
    }
    return GroupMemberSummary(
        member.member_id, member.client_id, member.client_host, partitions, member.instance_id
    )


def _classic_member(member: Any) -> GroupMemberSummary:
    assigned = _read_assignment(bytes(member.member_assignment or b""))
    return GroupMemberSummary(
        member.member_id, member.client_id, member.client_host, assigned, member.group_instance_id
    )


def _read_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Partitions by topic from an assignment of the protocol type "consumer": version 2 | topics, each a name
    and partitions. Empty for any other bytes.
    """
    found: dict[str, tuple[int, ...]] = {}
    try:
        position = _LENGTH.size
        (topics,) = _COUNT.unpack_from(data, position)
        position += _COUNT.size
        for _ in range(topics):
            (length,) = _LENGTH.unpack_from(data, position)
            position += _LENGTH.size
            name = data[position : position + length].decode()
            position += length
            (count,) = _COUNT.unpack_from(data, position)
            position += _COUNT.size
            partitions = []
            for _ in range(count):
                partitions.append(_COUNT.unpack_from(data, position)[0])
                position += _COUNT.size
            found[name] = tuple(sorted(partitions))
    except (error, UnicodeDecodeError):
        return {}
    return found
