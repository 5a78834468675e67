"""Brokers of a cluster: their addresses, the health of all partitions, and the space on their disks."""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.internal_client.api import ClientApi, check_error
from penstock.internal_client.routes import Routes
from penstock.internal_client.slices import in_slices
from penstock.internal_client.topic_routes import TopicRoute
from penstock.model import BrokerId, TopicPartition

_DESCRIBE_LOG_DIRS = ClientApi(35, 4)
_DESCRIBE_CLUSTER = ClientApi(60, 1)
_BROKER_ENDPOINTS = 1


@dataclass(frozen=True, slots=True)
class BrokerSummary:
    node_id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    cluster_id: str
    brokers: tuple[BrokerSummary, ...]
    partitions: int
    """Number of partitions of all topics."""
    without_leader: int
    under_replicated: int


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory of a broker."""

    usable_bytes: int
    """Free space of the directory's disk in bytes; negative if the broker does not report it."""
    sizes: Mapping[TopicPartition, int]
    """Size of each replica in the directory, in bytes."""


class BrokerCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def all(self) -> Sequence[BrokerSummary]:
        """Read the brokers of the cluster, sorted by id."""
        await self._routes.read_brokers()
        return self._known()

    async def ids(self) -> list[int]:
        """Return the ids of the brokers in the cluster, by DescribeCluster, which works even before any topic
        exists.
        """
        fields = {"include_cluster_authorized_operations": False, "endpoint_type": _BROKER_ENDPOINTS}
        response = await self._routes.at_any(lambda connection: _DESCRIBE_CLUSTER.call(connection, fields))
        check_error(response.error_code, response.error_message)
        return sorted(int(each.broker_id) for each in response.brokers)

    async def health(self) -> ClusterHealth:
        """Count the partitions of all topics, those without a leader, and those that are under-replicated."""
        topics = await self._routes.topics()
        partitions, without_leader, under_replicated = await in_slices(
            _count(topics.values(), self._routes.brokers)
        )
        return ClusterHealth(
            self._routes.cluster_id, self._known(), partitions, without_leader, under_replicated
        )

    async def log_dirs(self, node_id: BrokerId, *, with_sizes: bool = True) -> list[LogDir]:
        """Describe the log directories of one broker. The size of every replica is included unless
        `with_sizes` is False.

        Directories for which the broker reports an error are left out.
        """
        fields: dict[str, Any] = {"topics": None if with_sizes else []}
        response = await self._routes.at_broker(
            node_id, lambda connection: _DESCRIBE_LOG_DIRS.call(connection, fields)
        )
        return [_log_dir(result) for result in response.results if not result.error_code]

    def _known(self) -> tuple[BrokerSummary, ...]:
        return tuple(
            BrokerSummary(
                node_id,
                broker.address.host,
                broker.address.port,
                broker.rack,
                node_id == self._routes.controller,
            )
            for node_id, broker in sorted(self._routes.brokers.items())
        )


def _count(
    topics: Iterable[TopicRoute], alive: Container[BrokerId]
) -> Generator[None, None, tuple[int, int, int]]:
    """Count all partitions, those without a leader, and those that are under-replicated."""
    partitions = without_leader = under_replicated = 0
    for topic in topics:
        partitions += len(topic.partitions)
        without_leader += sum(each.leader not in alive for each in topic.partitions)
        under_replicated += sum(len(each.in_sync) < len(each.replicas) for each in topic.partitions)
        yield
    return partitions, without_leader, under_replicated


def _log_dir(result: Any) -> LogDir:
    sizes = {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }
    return LogDir(result.usable_bytes, sizes)
