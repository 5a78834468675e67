"""Quotas of users, client ids and addresses in a definitions document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.section import (
    CLUSTER_RESOURCE,
    ApplyStep,
    DefinitionSection,
    Entry,
    Right,
)
from penstock.internal_client.quotas import entity_document, read_entity


class QuotaSection(DefinitionSection):
    name = "quotas"
    noun = "quotas of"

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        found = await reading.cluster.quotas.describe()
        return [
            {
                "entity": entity_document(entity),
                "values": {str(key): value for key, value in sorted(values.items())},
            }
            for entity, values in sorted(found.items(), key=lambda each: str(each[0]))
            if values
        ]

    def identity(self, entry: Entry) -> str:
        return str(read_entity(entry["entity"]))

    def problem(self, entry: Entry) -> str:
        entity = entry["entity"]
        if not entity or ("ip" in entity and len(entity) > 1):
            return "entity: give a user, a client_id, both, or an ip"
        return ""

    def settings(self, entry: Entry) -> Mapping[str, Any]:
        values: Mapping[str, Any] = entry["values"]
        return values

    async def create(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.quotas.alter(read_entity(entry["entity"]), entry["values"])

    async def change(self, cluster: ClusterCalls, step: ApplyStep) -> None:
        values = {name: each.new for name, each in step.changes.items()}
        await cluster.quotas.alter(read_entity(step.entry["entity"]), values)

    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.quotas.alter(read_entity(entry["entity"]), dict.fromkeys(entry["values"]))

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        yield "ALTER_CONFIGS", *CLUSTER_RESOURCE
