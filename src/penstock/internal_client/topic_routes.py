"""Topics with the leaders of their partitions, from a Metadata response or from pages of all topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import ErrorCode
from penstock.model import BrokerId, TopicId

PARTITION_IS_GOING = ErrorCode.invalid_partitions
"""Error code by which Metadata tells internal clients that a partition is being removed by a smaller
partition count.
"""
PAGE_PARTITIONS = 125
"""Maximum number of partitions in one response of DescribeTopicPartitions, on which broker and client work
for a few milliseconds.
"""


@dataclass(frozen=True, slots=True)
class PartitionRoute:
    leader: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    is_going: bool = False
    """True if a smaller partition count removes the partition. It can be read, but not written."""


@dataclass(frozen=True, slots=True)
class TopicRoute:
    name: str
    id: TopicId
    is_internal: bool
    partitions: tuple[PartitionRoute, ...]

    @property
    def active_count(self) -> int:
        """Number of partitions that take new records, which are the first ones."""
        return sum(not partition.is_going for partition in self.partitions)


class TopicPages:
    """All topics, from the pages of DescribeTopicPartitions (KIP-966)."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicRoute] = {}
        self.is_complete = False
        self._cursor: Mapping[str, Any] | None = None

    def next_request(self) -> Mapping[str, Any]:
        return {"topics": (), "response_partition_limit": PAGE_PARTITIONS, "cursor": self._cursor}

    def add(self, page: Any) -> None:
        for topic in page.topics:
            if topic.name and topic.partitions and not topic.error_code:
                self._add_topic(topic)
        cursor = page.next_cursor
        if cursor is None:
            self.is_complete = True
        else:
            self._cursor = {"topic_name": cursor.topic_name, "partition_index": cursor.partition_index}

    def _add_topic(self, topic: Any) -> None:
        route = route_of(topic)
        earlier = self.topics.get(route.name)
        if earlier is not None and earlier.id == route.id:
            route = TopicRoute(
                route.name, route.id, route.is_internal, (*earlier.partitions, *route.partitions)
            )
        if topic.partitions[-1].partition_index == len(route.partitions) - 1:
            self.topics[route.name] = route
        else:
            # The topic was created again between two pages, so its first partitions are unknown.
            self.topics.pop(route.name, None)


def route_of(topic: Any) -> TopicRoute:
    """Return the route of a topic in a response."""
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return TopicRoute(
        topic.name,
        TopicId(topic.topic_id),
        bool(topic.is_internal),
        tuple(
            PartitionRoute(
                BrokerId(each.leader_id),
                each.leader_epoch,
                tuple(map(BrokerId, each.replica_nodes)),
                tuple(map(BrokerId, each.isr_nodes)),
                each.error_code == PARTITION_IS_GOING,
            )
            for each in partitions
        ),
    )
