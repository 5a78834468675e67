"""Declared pipelines in a definitions document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from penstock.declared.checking import check_pipeline
from penstock.declared.definition import topics_in
from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.section import ApplyStep, DefinitionSection, Entry, Right
from penstock.internal_client.pipelines import DEFINITIONS


class PipelineSection(DefinitionSection):
    name = "pipelines"
    noun = "pipeline"
    defaults: ClassVar[Mapping[str, Any]] = {"paused": False}

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        return [
            {
                "name": each.name,
                "definition": {name: value for name, value in each.document.items() if name != "name"},
                "paused": each.is_paused,
            }
            for each in await reading.cluster.pipelines.all()
        ]

    def problem(self, entry: Entry) -> str:
        found = check_pipeline(_document(entry))
        return "; ".join(f"{each.pointer or '/'}: {each.text}" for each in found)

    async def create(self, cluster: ClusterCalls, entry: Entry) -> None:
        stored, _ = await cluster.pipelines.put(_document(entry))
        if entry.get("paused", stored.is_paused) != stored.is_paused:
            await cluster.pipelines.set_paused(stored, entry["paused"])

    async def change(self, cluster: ClusterCalls, step: ApplyStep) -> None:
        paused = step.changes.get("paused")
        await self.create(cluster, {**step.entry, **({} if paused is None else {"paused": paused.new})})

    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.pipelines.delete(entry["name"])

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        yield "READ", "TOPIC", DEFINITIONS.name
        yield "WRITE", "TOPIC", DEFINITIONS.name
        if step.action != "delete":
            definition = step.entry["definition"]
            for topic in topics_in(definition["source"]):
                yield "READ", "TOPIC", topic
            for written in (definition["target"].get("topic"), definition.get("dead_letter")):
                if written:
                    yield "WRITE", "TOPIC", written


def _document(entry: Entry) -> dict[str, object]:
    return {**entry["definition"], "name": entry["name"]}
