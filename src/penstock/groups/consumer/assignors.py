"""The two server-side assignors of the consumer protocol.

Every partition of a topic is assigned to exactly one of the subscribed members. `assign_uniform` balances
the number of partitions with as few moves as possible; `assign_range` gives each member a contiguous range
of every topic, the same range for topics with the same number of partitions and the same subscribers.
Pure; called by `ConsumerState`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from penstock.config import ServerAssignor
from penstock.groups.consumer.balancing import balance_mixed, balance_same
from penstock.groups.records import Assignment
from penstock.model import TopicId


class SubscribedMember(NamedTuple):
    """A member as an assignor sees it. One is created for every member in every epoch, so creation must be cheap."""

    instance_id: str | None
    topics: frozenset[TopicId]


Assign: TypeAlias = Callable[
    [Mapping[str, SubscribedMember], Mapping[TopicId, int], Mapping[str, Assignment]], dict[str, Assignment]
]
"""Function that computes assignments from the members, the partition counts of their topics, and the previous
assignments.
"""


def assign_uniform(
    readers: Mapping[str, SubscribedMember],
    partition_counts: Mapping[TopicId, int],
    previous: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    if not readers:
        return {}
    if len({reader.topics for reader in readers.values()}) == 1:
        topics = next(iter(readers.values())).topics
        counts = {topic: partition_counts[topic] for topic in sorted(topics)}
        return balance_same(sorted(readers), counts, previous)
    topics_of = {member_id: readers[member_id].topics for member_id in sorted(readers)}
    return balance_mixed(topics_of, partition_counts, previous)


def assign_range(
    readers: Mapping[str, SubscribedMember],
    partition_counts: Mapping[TopicId, int],
    previous: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Assign a contiguous range of every topic to each of its subscribers. Members are ordered by instance
    id, then members without one by member id, so that a static member that returns under another member id
    keeps its range.
    """
    order = sorted(readers, key=lambda member_id: _place(member_id, readers[member_id]))
    assigned: dict[str, Assignment] = {member_id: {} for member_id in readers}
    members_of: dict[TopicId, list[str]] = {}
    for member_id in order:
        for topic in readers[member_id].topics:
            members_of.setdefault(topic, []).append(member_id)
    for topic in sorted(members_of):
        quota, extra = divmod(partition_counts[topic], len(members_of[topic]))
        start = 0
        for place, member_id in enumerate(members_of[topic]):
            end = start + quota + (place < extra)
            if end > start:
                assigned[member_id][topic] = frozenset(range(start, end))
            start = end
    return assigned


def _place(member_id: str, reader: SubscribedMember) -> tuple[bool, str]:
    return reader.instance_id is None, reader.instance_id or member_id


ASSIGNORS: Mapping[ServerAssignor, Assign] = {
    ServerAssignor.UNIFORM: assign_uniform,
    ServerAssignor.RANGE: assign_range,
}
