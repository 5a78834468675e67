"""Topics and their settings in a definitions document, without views. A plan never lowers a number of
partitions and never moves replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.config import DELIVERY_DELAY, MESSAGE_TIMESTAMP_TYPE, VIEW_OF
from penstock.config.resources import ConfigResourceType
from penstock.delay.retry_policy import OPTIONS as RETRY_OPTIONS
from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.section import (
    ApplyStep,
    DefinitionSection,
    Entry,
    FieldChange,
    Outcomes,
    Right,
)
from penstock.internal_client.topics import NewTopic

_WITH_DELAY = {MESSAGE_TIMESTAMP_TYPE.name: "LogAppendTime"}
"""Settings that the broker adds to a topic with delayed messages."""
_LAYOUT = ("partitions", "replication_factor")


class TopicSection(DefinitionSection):
    name = "topics"
    noun = "topic"
    fixed = frozenset({"replication_factor"})
    created_together = 50
    deletion_note = " with all of its messages"

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        return [
            {
                "name": name,
                "partitions": len(route.partitions),
                "replication_factor": max(len(each.replicas) for each in route.partitions),
                "configs": {
                    option: value for option, value in sorted(configs.items()) if option not in RETRY_OPTIONS
                },
            }
            for name, (route, configs) in sorted((await reading.topics()).items())
            if VIEW_OF.name not in configs
        ]

    def normal(self, entry: Entry) -> Entry:
        configs = entry.get("configs", {})
        if configs.get(DELIVERY_DELAY.name) != "true":
            return entry
        return {**entry, "configs": {**_WITH_DELAY, **configs}}

    def settings(self, entry: Entry) -> Mapping[str, Any]:
        return {**{name: entry[name] for name in _LAYOUT if name in entry}, **entry.get("configs", {})}

    def changes(
        self, present: Mapping[str, Any], wanted: Mapping[str, Any], prune: bool
    ) -> dict[str, FieldChange]:
        found = super().changes(present, wanted, prune)
        return {name: each for name, each in found.items() if name not in _LAYOUT or each.new is not None}

    def differences(self, name: str, present: Entry, wanted: Entry, prune: bool) -> Iterator[ApplyStep]:
        if wanted.get("partitions", present["partitions"]) < present["partitions"]:
            change = FieldChange(present["partitions"], wanted["partitions"])
            text = f"topic {name} has {change.old} partitions, not {change.new}; `penstock topic alter` lowers it"
            yield ApplyStep("differs", self.name, name, text, wanted, {"partitions": change})
            wanted = {**wanted, "partitions": present["partitions"]}
        yield from super().differences(name, present, wanted, prune)

    def way_out(self, field_name: str) -> str:
        return "; `penstock cluster` changes it"

    async def create(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.topics.create(new_topic(entry))

    async def create_each(self, cluster: ClusterCalls, entries: Sequence[Entry]) -> Outcomes:
        return await cluster.topics.create_each([new_topic(entry) for entry in entries])

    async def check_each(self, cluster: ClusterCalls, entries: Sequence[Entry]) -> Outcomes:
        new = [new_topic(entry) for entry in entries]
        return await cluster.topics.create_each(new, validate_only=True)

    async def change(self, cluster: ClusterCalls, step: ApplyStep) -> None:
        changes = dict(step.changes)
        partitions = changes.pop("partitions", None)
        if partitions is not None:
            await cluster.topics.set_partitions(step.name, partitions.new)
        if changes:
            values = {name: each.new for name, each in changes.items()}
            await cluster.configs.alter(ConfigResourceType.TOPIC, step.name, values)

    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.topics.delete(entry["name"])

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        if step.action in ("create", "delete"):
            yield step.action.upper(), "TOPIC", step.name
        if step.action == "change" and "partitions" in step.changes:
            yield "ALTER", "TOPIC", step.name
        if step.action == "change" and step.changes.keys() - {"partitions"}:
            yield "ALTER_CONFIGS", "TOPIC", step.name


def new_topic(entry: Entry) -> NewTopic:
    """Topic to create for an entry. Fields that the entry leaves out get the broker's defaults."""
    return NewTopic(
        entry["name"],
        entry.get("partitions", -1),
        entry.get("replication_factor", -1),
        entry.get("configs", {}),
    )
