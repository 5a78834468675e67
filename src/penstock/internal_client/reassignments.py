"""Reassignments of partitions to brokers, and elections of preferred leaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import ClientApi, check_error
from penstock.internal_client.routes import Routes
from penstock.model import BrokerId, TopicPartition

T = TypeVar("T")

PARTITIONS_PER_REQUEST = 500
_TIMEOUT_MS = 20_000
_ELECT_LEADERS = ClientApi(43, 2)
_ALTER_PARTITION_REASSIGNMENTS = ClientApi(45, 1)
_LIST_PARTITION_REASSIGNMENTS = ClientApi(46, 0)
_PREFERRED = 0


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment in progress."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


class ReassignmentCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def all(self) -> dict[TopicPartition, Reassignment]:
        """List the reassignments in progress."""
        fields = {"timeout": _TIMEOUT_MS, "topics": None}
        response = await self._routes.at_any(
            lambda connection: _LIST_PARTITION_REASSIGNMENTS.call(connection, fields)
        )
        check_error(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, partition.partition_index): Reassignment(
                tuple(map(BrokerId, partition.replicas)),
                tuple(map(BrokerId, partition.adding_replicas)),
                tuple(map(BrokerId, partition.removing_replicas)),
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    async def begin(self, targets: Mapping[TopicPartition, Sequence[BrokerId]]) -> None:
        """Reassign partitions to these replicas. A topic that was deleted meanwhile is skipped.

        A repeated request changes nothing, so another broker is asked if one does not respond.
        """
        for some in _portions(list(targets)):
            by_topic = _by_topic(
                (each.topic, {"partition_index": each.partition, "replicas": targets[each]}) for each in some
            )
            await self._begin([{"name": name, "partitions": each} for name, each in by_topic.items()])

    async def _begin(self, topics: Sequence[Mapping[str, Any]]) -> None:
        fields = {"timeout": _TIMEOUT_MS, "allow_replication_factor_change": True, "topics": topics}
        response = await self._routes.at_any(
            lambda connection: _ALTER_PARTITION_REASSIGNMENTS.call(connection, fields)
        )
        check_error(response.error_code, response.error_message)
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.error_code not in (0, ErrorCode.unknown_topic_or_partition):
                    name = TopicPartition(topic.name, partition.partition_index)
                    code = ErrorCode(partition.error_code)
                    raise BrokerError(code, f"{name}: {partition.error_message or code.name}")

    async def elect_preferred(self, partitions: Iterable[TopicPartition]) -> None:
        """Elect the preferred replicas as leaders. Partitions whose preferred replica cannot lead now are skipped."""
        for some in _portions(list(partitions)):
            by_topic = _by_topic((each.topic, each.partition) for each in some)
            wanted = [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic.items()]
            await self._elect_preferred(wanted)

    async def _elect_preferred(self, partitions: Sequence[Mapping[str, Any]]) -> None:
        fields = {"election_type": _PREFERRED, "topic_partitions": partitions, "timeout": _TIMEOUT_MS}
        response = await self._routes.at_any(lambda connection: _ELECT_LEADERS.call(connection, fields))
        check_error(response.error_code)


def _portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), PARTITIONS_PER_REQUEST):
        yield items[start : start + PARTITIONS_PER_REQUEST]


def _by_topic(items: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    topics: dict[str, list[Any]] = {}
    for topic, item in items:
        topics.setdefault(topic, []).append(item)
    return topics
