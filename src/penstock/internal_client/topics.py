"""Topics of a cluster: list, create, add partitions and delete.

A request that changes a topic is sent once. OutcomeUnknown is raised if its response is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from penstock.errors import BrokerError
from penstock.internal_client.api import ClientApi, check_error, error_of
from penstock.internal_client.inspection import QuestionArguments, ask_broker
from penstock.internal_client.routes import Routes
from penstock.internal_client.topic_routes import TopicRoute

_TIMEOUT_MS = 15_000
_CREATE_TOPICS = ClientApi(19, 7)
_DELETE_TOPICS = ClientApi(20, 6)
_CREATE_PARTITIONS = ClientApi(37, 3)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Topic to create; -1 stands for the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None


class TopicCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def all(self) -> Sequence[TopicRoute]:
        """Read every topic, sorted by name."""
        topics = await self._routes.topics()
        return [topics[name] for name in sorted(topics)]

    async def get(self, name: str, *, fresh: bool = False) -> TopicRoute:
        """Return a topic. With `fresh`, it is read again. Raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        if fresh:
            self._routes.forget(name)
        return await self._routes.topic(name)

    async def create(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        [error] = await self.create_each([topic], validate_only=validate_only)
        if error is not None:
            raise error

    async def create_each(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[BrokerError | None]:
        """Create topics with different names by one request. Returns None or the error for each topic, in
        order.

        With `validate_only` the broker only checks whether it would create them.
        """
        fields = {
            "topics": [_creatable(topic) for topic in topics],
            "timeout": _TIMEOUT_MS,
            "validate_only": validate_only,
        }
        response = await self._routes.once(lambda connection: _CREATE_TOPICS.call(connection, fields))
        results = {each.name: error_of(each.error_code, each.error_message) for each in response.topics}
        for topic in topics:
            self._routes.forget(topic.name)
        return [results[topic.name] for topic in topics]

    async def delete(self, name: str) -> None:
        fields = {"topics": [{"name": name, "topic_id": None}], "timeout": _TIMEOUT_MS}
        response = await self._routes.once(lambda connection: _DELETE_TOPICS.call(connection, fields))
        [result] = response.responses
        self._routes.forget(name)
        check_error(result.error_code, result.error_message)

    async def set_partitions(self, name: str, count: int) -> None:
        """Change the number of partitions to `count`: add partitions, or let the last ones drain."""
        self._routes.forget(name)
        if count <= len((await self._routes.topic(name)).partitions):
            await self.reduce_partitions(name, count)
        else:
            await self._add_partitions(name, count)

    async def reduce_partitions(
        self,
        name: str,
        count: int,
        change: str = "set",
        *,
        waits_for_groups: bool = True,
        dry_run: bool = False,
    ) -> Mapping[str, Any]:
        """Let the partitions from index `count` on drain, and keep those below that were about to be removed.

        `change` is `set`, `seal-now` or `drop-sealed`. Returns the phase of each partition.
        """
        arguments: QuestionArguments = {
            "topic": name,
            "count": count,
            "change": change,
            "waits_for_groups": int(waits_for_groups),
            "dry_run": int(dry_run),
        }
        phases = await self._routes.once(
            lambda connection: ask_broker(connection, "set_partition_count", arguments)
        )
        self._routes.forget(name)
        return cast("Mapping[str, Any]", phases)

    async def phases(self, name: str) -> Mapping[str, Any]:
        """Return the number of active partitions, and the phase of each partition with the time at which it began."""
        answer = await self._routes.at_any(lambda c: ask_broker(c, "partition_phases", {"topic": name}))
        return cast("Mapping[str, Any]", answer)

    async def _add_partitions(self, name: str, count: int) -> None:
        wanted = {"name": name, "count": count, "assignments": None}
        fields = {"topics": [wanted], "timeout": _TIMEOUT_MS, "validate_only": False}
        response = await self._routes.once(lambda connection: _CREATE_PARTITIONS.call(connection, fields))
        [result] = response.results
        self._routes.forget(name)
        check_error(result.error_code, result.error_message)


def _creatable(topic: NewTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "assignments": (),
        "configs": [{"name": name, "value": value} for name, value in (topic.configs or {}).items()],
    }
