"""Description of a topic for `penstock topic describe`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import typer

from penstock.cli.cluster_client import ClusterClient, PartitionRange
from penstock.cli.output import print_table
from penstock.config import RETENTION_ACKNOWLEDGED
from penstock.config.resources import ConfigResourceType

_DEFAULT = 5
_SOURCES = {
    1: "dynamic topic",
    2: "dynamic broker",
    3: "dynamic default broker",
    4: "static broker",
    _DEFAULT: "default",
}
"""Names that `penstock topic describe` shows for Kafka's config source codes."""


@dataclass(frozen=True, slots=True)
class Partition:
    held: PartitionRange
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    phase: str


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Description:
    topic: str
    topic_id: str
    partitions: tuple[Partition, ...]
    settings: tuple[Setting, ...]
    kept_by: Mapping[int, str] = field(default_factory=dict)
    """Reason why records are retained, by partition, for a topic with `retention.acknowledged`."""

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "partitions": [
                {
                    "partition": partition.held.partition,
                    "leader": partition.leader,
                    "replicas": list(partition.replicas),
                    "isr": list(partition.in_sync),
                    "start_offset": partition.held.start,
                    "end_offset": partition.held.end,
                    "phase": partition.phase,
                }
                for partition in self.partitions
            ],
            "settings": {
                setting.name: {"value": setting.value, "source": setting.source} for setting in self.settings
            },
            "kept_by": {str(partition): reason for partition, reason in self.kept_by.items()},
        }


def describe_topic(cluster: ClusterClient, topic: str) -> Description:
    route = cluster.topic(topic)
    held = cluster.ranges(topic, range(len(route.partitions)))
    phases = cluster.run(lambda client: client.topics.phases(topic), topic)["phases"]
    partitions = tuple(
        Partition(offsets, each.leader, each.replicas, each.in_sync, phase)
        for offsets, each, phase in zip(held, route.partitions, phases, strict=False)
    )
    settings = _settings(cluster, topic)
    return Description(topic, _shown_id(route.id), partitions, settings, _kept_by(cluster, topic, settings))


def print_description(description: Description) -> None:
    typer.echo(f"{description.topic}  id {description.topic_id}\n")
    columns = ["partition", "leader", "replicas", "in sync", "start offset", "end offset", "offsets"]
    rows = [_row(partition) for partition in description.partitions]
    if any(partition.phase != "active" for partition in description.partitions):
        columns.append("phase")
        rows = [(*row, each.phase) for row, each in zip(rows, description.partitions, strict=True)]
    print_table(columns, rows)
    for partition, reason in description.kept_by.items():
        typer.echo(f"deletion waits in partition {partition}: {reason}")
    own = [setting for setting in description.settings if setting.source != _SOURCES[_DEFAULT]]
    if own:
        typer.echo()
        print_table(["setting", "value", "from"], [(each.name, each.value, each.source) for each in own])


def _row(partition: Partition) -> tuple[object, ...]:
    held = partition.held
    replicas, in_sync = (",".join(map(str, ids)) for ids in (partition.replicas, partition.in_sync))
    return held.partition, partition.leader, replicas, in_sync, held.start, held.end, held.offsets


def _settings(cluster: ClusterClient, topic: str) -> tuple[Setting, ...]:
    entries = cluster.run(lambda client: client.configs.get(ConfigResourceType.TOPIC, topic), topic)
    return tuple(
        Setting(entry.name, str(entry.value), _SOURCES.get(entry.source, "unknown")) for entry in entries
    )


def _kept_by(cluster: ClusterClient, topic: str, settings: Sequence[Setting]) -> dict[int, str]:
    if not any(each.name == RETENTION_ACKNOWLEDGED.name and each.value == "true" for each in settings):
        return {}
    return cluster.run(lambda client: client.inspection.retention_reasons(topic), topic)


def _shown_id(topic_id: UUID) -> str:
    """Return a topic id in base64, the format of Kafka's tools."""
    return b64encode(topic_id.bytes).decode().rstrip("=")
