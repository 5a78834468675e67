"""What `penstock topic describe` shows of a topic."""

from __future__ import annotations

from dataclasses import dataclass

import typer
from confluent_kafka import TopicCollection
from confluent_kafka.admin import ConfigResource, ConfigSource, TopicDescription

from penstock.cli.cluster import REQUEST_SECONDS, Cluster, PartitionRange, answers
from penstock.cli.output import print_table


@dataclass(frozen=True, slots=True)
class Partition:
    held: PartitionRange
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


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
                }
                for partition in self.partitions
            ],
            "settings": {
                setting.name: {"value": setting.value, "source": setting.source} for setting in self.settings
            },
        }


def describe_topic(cluster: Cluster, topic: str) -> Description:
    numbers = cluster.partitions(topic)
    asked = cluster.admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_SECONDS)
    described: TopicDescription = answers(asked)[0]
    held = {part.partition: part for part in cluster.ranges(topic, numbers)}
    partitions = tuple(
        Partition(
            held[part.id],
            part.leader.id if part.leader is not None else -1,
            tuple(node.id for node in part.replicas),
            tuple(node.id for node in part.isr),
        )
        for part in sorted(described.partitions, key=lambda part: part.id)
    )
    return Description(topic, str(described.topic_id), partitions, _settings(cluster, topic))


def print_description(description: Description) -> None:
    typer.echo(f"{description.topic}  id {description.topic_id}\n")
    print_table(
        ["partition", "leader", "replicas", "in sync", "start offset", "end offset", "offsets"],
        [_row(partition) for partition in description.partitions],
    )
    own = [
        setting for setting in description.settings if setting.source != _source(ConfigSource.DEFAULT_CONFIG)
    ]
    if own:
        typer.echo()
        print_table(["setting", "value", "from"], [(each.name, each.value, each.source) for each in own])


def _row(partition: Partition) -> tuple[object, ...]:
    held = partition.held
    replicas, in_sync = (",".join(map(str, ids)) for ids in (partition.replicas, partition.in_sync))
    return held.partition, partition.leader, replicas, in_sync, held.start, held.end, held.offsets


def _settings(cluster: Cluster, topic: str) -> tuple[Setting, ...]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = answers(cluster.admin.describe_configs([resource], request_timeout=REQUEST_SECONDS))[0]
    return tuple(
        Setting(name, str(entry.value), _source(ConfigSource(entry.source)))
        for name, entry in sorted(entries.items())
    )


def _source(source: ConfigSource) -> str:
    return str(source.name).removesuffix("_CONFIG").replace("_", " ").lower()
