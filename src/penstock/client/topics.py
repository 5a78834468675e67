"""Administration of topics: `Admin().topics`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)

from penstock.client.cluster import Cluster
from penstock.client.errors import InvalidSetting, TopicUnknown
from penstock.client.offset_lookup import END, START, Where

INTERNAL = "__"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition of a topic, with its first offset `start` and its end offset `end` (exclusive)."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: tuple[PartitionInfo, ...]
    config: Mapping[str, str]
    """Effective value of each setting of the topic."""
    changed: frozenset[str]
    """Names of the settings that override the broker's default for this topic."""

    @property
    def messages(self) -> int:
        """Number of offsets between start and end of all partitions. A compacted topic has fewer messages."""
        return sum(each.end - each.start for each in self.partitions)


class Topics:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replicas: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; the broker's defaults apply for the number of partitions and replicas."""
        topic = NewTopic(name, partitions or -1, replicas or -1, config=dict(config or {}))
        self._cluster.ask(self._cluster.admin.create_topics([topic]), f"cannot create {name}")

    def list(self, *, internal: bool = False) -> list[str]:
        """Return the topic names; internal topics only with `internal`."""
        return sorted(
            name for name in self._cluster.metadata().topics if internal or not name.startswith(INTERNAL)
        )

    def describe(self, name: str) -> Topic:
        found = self._cluster.metadata().topics.get(name)
        if found is None:
            raise TopicUnknown(f"there is no topic {name!r}; create it with `penstock topic create` or Admin")
        places = [(name, number) for number in sorted(found.partitions)]
        starts, ends = self._cluster.offsets(places, START), self._cluster.offsets(places, END)
        entries = _settings(self._cluster, name)
        return Topic(
            name,
            tuple(
                PartitionInfo(
                    number,
                    found.partitions[number].leader,
                    tuple(found.partitions[number].replicas),
                    tuple(found.partitions[number].isrs),
                    starts[name, number],
                    ends[name, number],
                )
                for _, number in places
            ),
            {entry.name: entry.value for entry in entries},
            frozenset(
                entry.name for entry in entries if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            ),
        )

    def configs(self, name: str) -> dict[str, str]:
        """Return the effective settings of a topic."""
        return {entry.name: entry.value for entry in _settings(self._cluster, name)}

    def alter(self, name: str, *, set: Mapping[str, str] | None = None, unset: Iterable[str] = ()) -> None:
        """Change some settings and reset others to the broker's default."""
        changes = [
            ConfigEntry(setting, str(value), incremental_operation=AlterConfigOpType.SET)
            for setting, value in (set or {}).items()
        ]
        changes += [
            ConfigEntry(setting, None, incremental_operation=AlterConfigOpType.DELETE) for setting in unset
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=changes)
        self._cluster.ask(self._cluster.admin.incremental_alter_configs([resource]), f"cannot alter {name}")

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions to `total`; stored messages stay in their partitions."""
        self._cluster.ask(
            self._cluster.admin.create_partitions([NewPartitions(name, total)]),
            f"cannot add partitions to {name}",
        )

    def reduce_partitions(
        self,
        name: str,
        total: int,
        *,
        wait_for_groups: bool = True,
        seal_now: bool = False,
        drop_sealed: bool = False,
        dry_run: bool = False,
    ) -> tuple[str, ...]:
        """Reduce the number of partitions: partitions from `total` on drain, partitions below `total` become active
        again. Returns the phase of each partition.

        A draining partition is sealed when producers no longer write to it and, with `wait_for_groups`, its groups have
        read it. `seal_now` refuses new messages at once, so messages that producers have batched fail; `drop_sealed`
        deletes sealed partitions before their retention time has passed.
        """
        if seal_now and drop_sealed:
            raise InvalidSetting("seal_now and drop_sealed exclude each other")
        change = "seal-now" if seal_now else "drop-sealed" if drop_sealed else "set"
        found = self._cluster.calls.run(
            lambda client: client.topics.reduce_partitions(
                name, total, change, waits_for_groups=wait_for_groups, dry_run=dry_run
            )
        )
        return tuple(found["phases"])

    def phases(self, name: str) -> tuple[str, ...]:
        """Return the phase of each partition: active, draining, sealing, sealed or dropping."""
        return tuple(self._cluster.calls.run(lambda client: client.topics.phases(name))["phases"])

    def truncate(self, name: str, before: Where = END, *, partitions: Iterable[int] | None = None) -> int:
        """Delete the records before an offset or a time; all records by default.

        Returns the number of deleted messages whose delay had not yet passed.
        """
        places = self._cluster.places(name, partitions)
        found = self._cluster.offsets(places, before)
        offsets = {partition: offset for (_, partition), offset in found.items()}
        truncated = self._cluster.calls.run(lambda client: client.records.delete_before(name, offsets))
        return sum(each.removed_pending for each in truncated.values())

    def delete(self, name: str) -> None:
        self._cluster.ask(self._cluster.admin.delete_topics([name]), f"cannot delete {name}")


def _settings(cluster: Cluster, topic: str) -> list[ConfigEntry]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (found,) = cluster.ask(cluster.admin.describe_configs([resource]), f"cannot describe {topic}")
    return sorted(found.values(), key=lambda entry: str(entry.name))
