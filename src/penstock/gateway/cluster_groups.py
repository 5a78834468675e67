"""`Groups` of a cluster: who is in them, how far they have read, and setting that anew."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from struct import Struct, error
from typing import Any, TypeVar

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.backend import (
    EARLIEST,
    LATEST,
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupSummary,
    Records,
)
from penstock.net.client import Client
from penstock.net.routes import CoordinatorKind, Routes, check

T = TypeVar("T")

PATIENCE_SECONDS = 10.0
_OFFSET_COMMIT, _OFFSET_FETCH, _DESCRIBE_GROUPS, _LIST_GROUPS = 8, 9, 15, 16
_DELETE_GROUPS, _CONSUMER_GROUP_DESCRIBE = 42, 69
_NO_MEMBER_EPOCH = -1
_CLASSIC = "classic"
_COUNT, _LENGTH = Struct(">i"), Struct(">h")


class ClusterGroups:
    def __init__(self, routes: Routes, records: Records) -> None:
        self._routes = routes
        self._records = records

    async def all(self) -> Sequence[GroupSummary]:
        await self._routes.topics()
        fields = {"states_filter": (), "types_filter": ()}
        found: list[GroupSummary] = []
        for node_id in sorted(self._routes.brokers):
            client = await self._routes.broker(node_id)
            response = await client.request(_LIST_GROUPS, 5, fields)
            check(response.error_code)
            found += [
                GroupSummary(each.group_id, each.group_type or _CLASSIC, each.group_state)
                for each in response.groups
            ]
        return sorted(found, key=lambda each: each.id)

    async def describe(self, group: str) -> GroupDescription:
        try:
            described = await self._ask(
                group,
                _CONSUMER_GROUP_DESCRIBE,
                1,
                {"group_ids": [group], "include_authorized_operations": False},
                lambda response: response.groups[0],
            )
            summary = GroupSummary(group, "consumer", described.group_state)
            members = tuple(_member(each) for each in described.members)
        except BrokerError as problem:
            if problem.code is not ErrorCode.group_id_not_found:
                raise
            described = await self._ask(
                group,
                _DESCRIBE_GROUPS,
                5,
                {"groups": [group], "include_authorized_operations": False},
                lambda response: response.groups[0],
            )
            if described.group_state == "Dead":
                raise BrokerError(ErrorCode.group_id_not_found, f"there is no group {group[:80]!r}") from None
            summary = GroupSummary(group, _CLASSIC, described.group_state)
            members = tuple(_classic_member(each) for each in described.members)
        return GroupDescription(summary, members, await self._offsets(group, members))

    async def _offsets(self, group: str, members: Sequence[GroupMember]) -> tuple[GroupOffset, ...]:
        """Every partition of the topics that the group reads: a member owns one of its partitions, or one has a
        committed offset."""
        asked = {"group_id": group, "member_id": None, "member_epoch": _NO_MEMBER_EPOCH, "topics": None}
        answer = await self._ask(
            group,
            _OFFSET_FETCH,
            9,
            {"groups": [asked], "require_stable": False},
            lambda response: response.groups[0],
        )
        committed: dict[str, dict[int, int]] = {
            topic: {} for member in members for topic in member.partitions
        }
        committed |= {
            topic.name: {
                each.partition_index: each.committed_offset
                for each in topic.partitions
                if each.committed_offset >= 0
            }
            for topic in answer.topics
        }
        found = await asyncio.gather(*(self._of_topic(*each) for each in committed.items()))
        return tuple(each for of_topic in found for each in of_topic)

    async def _of_topic(self, topic: str, committed: Mapping[int, int]) -> list[GroupOffset]:
        try:
            partitions = range(len((await self._routes.topic(topic)).partitions))
            starts, ends = await asyncio.gather(
                self._records.offsets(topic, partitions, EARLIEST),
                self._records.offsets(topic, partitions, LATEST),
            )
        except BrokerError as problem:
            if problem.code is not ErrorCode.unknown_topic_or_partition:
                raise
            # The topic was deleted, and nothing of it is left to read.
            return [
                GroupOffset(topic, number, offset, offset, offset) for number, offset in committed.items()
            ]
        return [
            GroupOffset(topic, number, committed.get(number), starts[number], ends[number])
            for number in partitions
        ]

    async def reset(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for (topic, partition), offset in offsets.items():
            by_topic[topic].append(
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            )
        topics = [{"name": topic, "partitions": partitions} for topic, partitions in by_topic.items()]
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": _NO_MEMBER_EPOCH,
            "member_id": "",
            "group_instance_id": None,
            "topics": topics,
        }

        def read(response: Any) -> Any:
            for topic in response.topics:
                for each in topic.partitions:
                    if each.error_code in (ErrorCode.unknown_member_id, ErrorCode.rebalance_in_progress):
                        raise BrokerError(
                            ErrorCode.non_empty_group, "the group has members; stop them to reset it"
                        )
                    check(each.error_code)
            return response

        await self._ask(group, _OFFSET_COMMIT, 9, fields, read)

    async def delete(self, group: str) -> None:
        await self._ask(
            group, _DELETE_GROUPS, 2, {"groups_names": [group]}, lambda response: response.results[0]
        )

    async def _ask(
        self,
        group: str,
        api_key: int,
        version: int,
        fields: Mapping[str, Any],
        read: Callable[[Any], Any],
    ) -> Any:
        async def ask(client: Client) -> Any:
            answer = read(await client.request(api_key, version, fields))
            check(getattr(answer, "error_code", 0), getattr(answer, "error_message", None))
            return answer

        return await self._routes.at_coordinator(CoordinatorKind.GROUP, group, ask, PATIENCE_SECONDS)


def _member(member: Any) -> GroupMember:
    partitions = {
        topic.topic_name: tuple(sorted(topic.partitions)) for topic in member.assignment.topic_partitions
    }
    return GroupMember(member.member_id, member.client_id, member.client_host, partitions)


def _classic_member(member: Any) -> GroupMember:
    assigned = _read_assignment(bytes(member.member_assignment or b""))
    return GroupMember(member.member_id, member.client_id, member.client_host, assigned)


def _read_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Of the consumers' embedded protocol: version 2 | topics, each a name and partitions. Empty for any other."""
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
