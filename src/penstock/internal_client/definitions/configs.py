"""Cluster-wide broker settings, and settings of groups, in a definitions document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.config import SHARE_AUTO_OFFSET_RESET, SHARE_ISOLATION_LEVEL, SHARE_QUEUE_TOPIC
from penstock.config.resources import ConfigResourceType
from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.section import (
    CLUSTER_RESOURCE,
    ApplyStep,
    DefinitionSection,
    Entry,
    Right,
)
from penstock.internal_client.queues import SETTINGS

_OF_QUEUES = {
    *SETTINGS.values(),
    SHARE_QUEUE_TOPIC.name,
    SHARE_AUTO_OFFSET_RESET.name,
    SHARE_ISOLATION_LEVEL.name,
}
"""Group settings that belong to the group's queue, and therefore to the section of queues."""


class _ConfigSection(DefinitionSection):
    """Settings of one kind of resource: an entry has a name and settings."""

    kind: ConfigResourceType

    def settings(self, entry: Entry) -> Mapping[str, Any]:
        configs: Mapping[str, Any] = entry["configs"]
        return configs

    async def create(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.configs.alter(self.kind, entry["name"], entry["configs"], may_repeat=True)

    async def change(self, cluster: ClusterCalls, step: ApplyStep) -> None:
        values = {name: each.new for name, each in step.changes.items()}
        await cluster.configs.alter(self.kind, step.name, values, may_repeat=True)

    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.configs.alter(
            self.kind, entry["name"], dict.fromkeys(entry["configs"]), may_repeat=True
        )


class BrokerSection(_ConfigSection):
    """Cluster-wide broker settings: a single entry without a name."""

    name = "brokers"
    noun = "settings of all brokers"
    kind = ConfigResourceType.BROKER

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        # A request for all brokers returns the cluster-wide settings only, whatever their source.
        entries = await reading.cluster.configs.get(ConfigResourceType.BROKER, "")
        shown = {
            each.name: each.value for each in entries if not each.is_sensitive and each.value is not None
        }
        return [{"name": "", "configs": dict(sorted(shown.items()))}]

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        yield "ALTER_CONFIGS", *CLUSTER_RESOURCE


class GroupSection(_ConfigSection):
    """Settings of groups, without those of queues."""

    name = "groups"
    noun = "settings of group"
    kind = ConfigResourceType.GROUP

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        queues = await reading.queues()
        found: list[Entry] = []
        for name, configs in sorted((await reading.groups()).items()):
            left_out = _OF_QUEUES if name in queues else ()
            shown = {option: value for option, value in sorted(configs.items()) if option not in left_out}
            if shown:
                found.append({"name": name, "configs": shown})
        return found

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        yield "ALTER_CONFIGS", "GROUP", step.name
