"""A simulated client of a group coordinator: requests of consumer groups, in versions drawn from the seed.

As with `SimulatedClient`, a refusal is a BrokerError and an unknown outcome is `NoAnswer`. JoinGroup and
ConsumerGroupHeartbeat return their response whatever its error code is, because the error is part of the
protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock.errors import ErrorCode
from simulation.clients.client import ANSWER_SECONDS, SimulatedClient, check_error
from simulation.models.offset_model import ShownOffset

_FIRST_WITH_INSTANCE = {"JoinGroup": 9, "SyncGroup": 3, "Heartbeat": 3, "LeaveGroup": 3, "OffsetCommit": 7}
"""The first version of each request with a group instance id. JoinGroup has it from version 5 on, but tells a
returned static leader only from version 9 on that it leads, and a group without a leader does not notice
new partitions.
"""
RANGE = "range"
CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class Identity:
    """A member as its coordinator knows it; `generation` is a member epoch in the consumer protocol."""

    group: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }

    def versions(self, api: str, first: int, last: int) -> tuple[int, ...]:
        if self.instance_id is not None:
            first = max(first, _FIRST_WITH_INSTANCE[api])
        return tuple(range(first, last + 1))


@dataclass(frozen=True, slots=True)
class Commit:
    topic: str
    topic_id: UUID
    partition: int
    offset: int
    metadata: str


class GroupClient:
    def __init__(self, client: SimulatedClient) -> None:
        self._client = client

    async def find(self, group: str) -> None:
        fields = {"key": group, "key_type": 0, "coordinator_keys": [group]}
        response = await self._client.ask("FindCoordinator", (0, 1, 3, 4, 6), fields)
        check_error(
            response.coordinators[0].error_code if hasattr(response, "coordinators") else response.error_code
        )

    # --- the classic protocol

    async def join(self, who: Identity, subscription: bytes, session_ms: int, rebalance_ms: int) -> Any:
        fields = who.fields | {
            "session_timeout": session_ms,
            "rebalance_timeout": rebalance_ms,
            "protocol_type": CONSUMER,
            "protocols": [{"name": RANGE, "metadata": subscription}],
        }
        seconds = ANSWER_SECONDS + rebalance_ms / 1000
        return await self._client.ask("JoinGroup", who.versions("JoinGroup", 0, 9), fields, seconds)

    async def sync(self, who: Identity, assignments: Mapping[str, bytes], rebalance_ms: int) -> bytes:
        fields = who.fields | {
            "generation_id": who.generation,
            "protocol_type": CONSUMER,
            "protocol_name": RANGE,
            "assignments": [
                {"member_id": member_id, "assignment": assignment}
                for member_id, assignment in assignments.items()
            ],
        }
        seconds = ANSWER_SECONDS + rebalance_ms / 1000
        response = await self._client.ask("SyncGroup", who.versions("SyncGroup", 0, 5), fields, seconds)
        check_error(response.error_code)
        return bytes(response.assignment)

    async def heartbeat(self, who: Identity) -> None:
        fields = who.fields | {"generation_id": who.generation}
        response = await self._client.ask("Heartbeat", who.versions("Heartbeat", 0, 4), fields)
        check_error(response.error_code)

    async def leave(self, who: Identity) -> None:
        member = {"member_id": who.member_id, "group_instance_id": who.instance_id}
        fields = {"group_id": who.group, "member_id": who.member_id, "members": [member]}
        response = await self._client.ask("LeaveGroup", who.versions("LeaveGroup", 0, 5), fields)
        check_error(response.error_code)

    # --- the consumer protocol

    async def consumer_heartbeat(
        self,
        who: Identity,
        rebalance_ms: int,
        topics: Sequence[str] | None,
        owned: Mapping[UUID, Iterable[int]] | None,
        regex: str | None = None,
    ) -> Any:
        """Report to the coordinator; None stands for an unchanged value."""
        fields = {
            "group_id": who.group,
            "member_id": who.member_id,
            "member_epoch": who.generation,
            "instance_id": who.instance_id,
            "rebalance_timeout": rebalance_ms,
            "subscribed_topic_names": topics,
            "subscribed_topic_regex": regex,
            "topic_partitions": None
            if owned is None
            else [
                {"topic_id": topic_id, "partitions": sorted(partitions)}
                for topic_id, partitions in owned.items()
            ],
        }
        versions = (0, 1) if regex is None else (1,)
        return await self._client.ask("ConsumerGroupHeartbeat", versions, fields)

    # --- offsets

    async def commit(
        self, who: Identity, commits: Sequence[Commit], version: int | None = None
    ) -> list[ErrorCode]:
        """Commit offsets, in any version unless one is given, and return the outcome of each."""
        topics = [
            {
                "name": commit.topic,
                "topic_id": commit.topic_id,
                "partitions": [
                    {
                        "partition_index": commit.partition,
                        "committed_offset": commit.offset,
                        "committed_metadata": commit.metadata,
                    }
                ],
            }
            for commit in commits
        ]
        fields = who.fields | {"generation_id_or_member_epoch": who.generation, "topics": topics}
        versions = who.versions("OffsetCommit", 2, 10) if version is None else (version,)
        response = await self._client.ask("OffsetCommit", versions, fields)
        return [ErrorCode(topic.partitions[0].error_code) for topic in response.topics]

    async def fetch_offset(
        self, group: str, topic: str, topic_id: UUID, partition: int, member: Identity | None = None
    ) -> ShownOffset | None:
        named = {"name": topic, "partition_indexes": [partition]}
        in_group = {
            "group_id": group,
            "member_id": None if member is None else member.member_id,
            "member_epoch": -1 if member is None else member.generation,
            "topics": [named | {"topic_id": topic_id}],
        }
        fields = {"group_id": group, "topics": [named], "groups": [in_group], "require_stable": True}
        versions = (9, 10) if member is not None else (1, 2, 3, 5, 6, 7, 8, 9, 10)
        response = await self._client.ask("OffsetFetch", versions, fields)
        found = response.groups[0] if hasattr(response, "groups") else response
        check_error(getattr(found, "error_code", 0))
        shown = found.topics[0].partitions[0]
        check_error(shown.error_code)
        return (
            None if shown.committed_offset < 0 else ShownOffset(shown.committed_offset, shown.metadata or "")
        )

    async def delete_offset(self, group: str, topic: str, partition: int) -> None:
        asked = {"name": topic, "partitions": [{"partition_index": partition}]}
        response = await self._client.ask("OffsetDelete", (0,), {"group_id": group, "topics": [asked]})
        check_error(response.error_code)
        check_error(response.topics[0].partitions[0].error_code)

    # --- whole groups

    async def delete(self, group: str) -> None:
        response = await self._client.ask("DeleteGroups", (0, 1, 2), {"groups_names": [group]})
        check_error(response.results[0].error_code)

    async def list(self) -> list[str]:
        fields: dict[str, Any] = {"states_filter": [], "types_filter": []}
        response = await self._client.ask("ListGroups", (0, 2, 3, 4, 5), fields)
        check_error(response.error_code)
        return [group.group_id for group in response.groups]

    async def describe(self, group: str) -> str:
        """Describe everything that a restart may not change, as text.

        Only GROUP_ID_NOT_FOUND says that the group has no member of the consumer protocol: then the
        classic request follows.
        """
        response = await self._client.ask("ConsumerGroupDescribe", (0, 1), {"group_ids": [group]})
        described = response.groups[0]
        if described.error_code == ErrorCode.none:
            members = [
                f"{member.member_id} {member.member_epoch} {_partitions(member.assignment)}"
                f" {_partitions(member.target_assignment)}"
                for member in described.members
            ]
            head = f"{described.group_state} {described.group_epoch} {described.assignment_epoch}"
            return "\n".join([head, *sorted(members)])
        if described.error_code != ErrorCode.group_id_not_found:
            check_error(described.error_code)
        response = await self._client.ask("DescribeGroups", (0, 1, 3, 4, 5), {"groups": [group]})
        described = response.groups[0]
        if described.error_code != ErrorCode.group_id_not_found:
            check_error(described.error_code)
        classic = [
            f"{member.member_id} {bytes(member.member_assignment).hex()}" for member in described.members
        ]
        return "\n".join([f"{described.group_state} {described.protocol_data}", *sorted(classic)])


def _partitions(assignment: Any) -> str:
    return " ".join(
        sorted(f"{topic.topic_id}:{sorted(topic.partitions)}" for topic in assignment.topic_partitions)
    )
