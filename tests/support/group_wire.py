"""Requests of the group APIs with the fields of all versions, and a member that has joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from support.harness import Fields, Harness

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69

GROUP = 0
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
ASSIGNMENT = b"what to read"


class Member(NamedTuple):
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


def join_fields(group_id: str = "g", member_id: str = "", **changed: Any) -> Fields:
    return {
        "group_id": group_id,
        "session_timeout": 30_000,
        "rebalance_timeout": 60_000,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics"}],
        "reason": None,
    } | changed


def sync_fields(member: Member, assignments: Mapping[str, bytes] | None = None, **changed: Any) -> Fields:
    given = {member.member_id: ASSIGNMENT} if assignments is None else assignments
    return {
        "group_id": member.group_id,
        "generation_id": member.generation,
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": key, "assignment": value} for key, value in given.items()],
    } | changed


def heartbeat_fields(member: Member) -> Fields:
    return {
        "group_id": member.group_id,
        "generation_id": member.generation,
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
    }


def leave_fields(group_id: str, *member_ids: str, instance_id: str | None = None) -> Fields:
    members = [
        {"member_id": member_id, "group_instance_id": instance_id, "reason": None} for member_id in member_ids
    ]
    return {"group_id": group_id, "member_id": member_ids[0], "members": members}


def commit_fields(
    group_id: str = "g",
    offsets: Sequence[Fields] = (),
    member: Member | None = None,
    **changed: Any,
) -> Fields:
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1 if member is None else member.generation,
        "member_id": "" if member is None else member.member_id,
        "group_instance_id": None,
        "retention_time": -1,
        "topics": offsets,
    } | changed


def topic_offsets(
    topic: str,
    offsets: Mapping[int, int],
    *,
    leader_epoch: int = 3,
    metadata: str | None = "note",
    **key: Any,
) -> Fields:
    partitions = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": leader_epoch,
            "committed_metadata": metadata,
        }
        for index, offset in offsets.items()
    ]
    return {"name": topic, "partitions": partitions, **key}


def fetch_fields(group_id: str = "g", topics: Mapping[str, Sequence[int]] | None = None) -> Fields:
    """Fields for one group (old versions) and for several groups (new versions)."""
    asked = None
    if topics is not None:
        asked = [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]
    group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": asked}
    return {"group_id": group_id, "topics": asked, "groups": [group], "require_stable": True}


def consumer_fields(group_id: str = "g", member_id: str = "m", epoch: int = 0, **changed: Any) -> Fields:
    return {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["a"],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    } | changed


async def find(broker: Harness, group_id: str = "g") -> Any:
    """Find the coordinator. The first call creates the offsets topic."""
    found = await broker.ask(FIND_COORDINATOR, 2, {"key": group_id, "key_type": GROUP})
    assert found.error_code == 0
    return found


async def joined(broker: Harness, group_id: str = "g", **changed: Any) -> Member:
    """Join as the only member of a group, and get an assignment."""
    await find(broker, group_id)
    answer = await broker.ask(JOIN_GROUP, 3, join_fields(group_id, **changed))
    assert answer.error_code == 0
    member = Member(group_id, answer.member_id, answer.generation_id)
    synced = await broker.ask(SYNC_GROUP, 3, sync_fields(member))
    assert synced.error_code == 0
    return member


async def committed(
    broker: Harness, topic: str, offsets: Mapping[int, int], group_id: str = "g", **fields: Any
) -> list[int]:
    """Commit as a client outside of the group, and return the error codes."""
    await find(broker, group_id)
    answer = await broker.ask(
        OFFSET_COMMIT, 9, commit_fields(group_id, [topic_offsets(topic, offsets, **fields)])
    )
    return [partition.error_code for partition in answer.topics[0].partitions]


async def fetched(
    broker: Harness, group_id: str = "g", topics: Mapping[str, Sequence[int]] | None = None
) -> dict[tuple[str, int], tuple[int, int, str | None]]:
    answer = await broker.ask(OFFSET_FETCH, 9, fetch_fields(group_id, topics))
    [group] = answer.groups
    assert group.error_code == 0
    return {
        (topic.name, partition.partition_index): (
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.metadata,
        )
        for topic in group.topics
        for partition in topic.partitions
    }
