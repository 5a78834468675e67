"""Share groups over HTTP: start offset, lag and records in flight of each partition, and resets of start offsets."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.backend import Backend
from penstock.gateway.http.shared_schemas import INTEGER, STRING, an_object, nullable
from penstock.internal_client.share_groups import SHARE, ShareGroupOffset, ShareMemberSummary
from penstock.wire.share_status import ShareStatus

_ASSIGNOR = "simple"

SHARE_PARTITION = an_object(
    {
        "topic": STRING,
        "partition": INTEGER,
        "start_offset": {**nullable(INTEGER), "description": "null until a member reads the partition."},
        "lag": {**nullable(INTEGER), "description": "Records that are not settled; null if it is not known."},
        "in_flight": {**INTEGER, "description": "Records that members have acquired."},
        "waiting": {**INTEGER, "description": "Records that wait for redelivery."},
        "oldest_lock_ms": {**nullable(INTEGER), "description": "Age of the oldest lock; null without one."},
    }
)


async def is_share_group(backend: Backend, group: str) -> bool:
    """True if there is a share group with this id."""
    try:
        await backend.share_groups.describe(group)
    except BrokerError as error:
        if error.code is ErrorCode.group_id_not_found:
            return False
        raise
    return True


async def describe_share_group(backend: Backend, group: str) -> dict[str, Any]:
    """Describe a share group in the JSON form of a group; raises GROUP_ID_NOT_FOUND if it does not exist."""
    described = await backend.share_groups.describe(group)
    served = {(each.topic, each.partition): each for each in await backend.share_groups.status(group)}
    partitions = [_shown(each, served.get((each.topic, each.partition))) for each in described.offsets]
    return {
        "id": group,
        "type": SHARE,
        "state": described.state,
        "assignor": _ASSIGNOR if described.members else "",
        "lag": sum(each["lag"] or 0 for each in partitions),
        "members": [_shown_member(each) for each in described.members],
        "offsets": [],
        "share_partitions": partitions,
    }


def _shown(offset: ShareGroupOffset, status: ShareStatus | None) -> dict[str, Any]:
    age_ms = -1 if status is None else status.oldest_lock_ms
    return {
        "topic": offset.topic,
        "partition": offset.partition,
        "start_offset": offset.start_offset,
        "lag": offset.lag,
        "in_flight": 0 if status is None else status.in_flight,
        "waiting": 0 if status is None else status.waiting,
        "oldest_lock_ms": None if age_ms < 0 else age_ms,
    }


def _shown_member(member: ShareMemberSummary) -> dict[str, Any]:
    partitions: dict[str, list[int]] = {}
    for topic, partition in member.partitions:
        partitions.setdefault(topic, []).append(partition)
    return {
        "id": member.id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": None,
        "partitions": partitions,
    }


async def start_offsets(backend: Backend, group: str) -> dict[str, dict[int, int]]:
    """Return the known start offsets of a share group, by topic and partition."""
    found: dict[str, dict[int, int]] = {}
    for each in await backend.share_groups.offsets(group):
        if each.start_offset is not None:
            found.setdefault(each.topic, {})[each.partition] = each.start_offset
    return found
