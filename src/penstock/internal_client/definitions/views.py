"""Views in a definitions document: topics that show a part of another topic. Views of queues belong to their
queues; shared views are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.config import VIEW_FILTER, VIEW_OF, VIEW_SHARED
from penstock.config.resources import ConfigResourceType
from penstock.errors import ConfigError
from penstock.filters.matching import Filter
from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.section import ApplyStep, DefinitionSection, Entry, Right
from penstock.internal_client.topics import NewTopic

_OPTIONS = {"of": VIEW_OF.name, "filter": VIEW_FILTER.name}


class ViewSection(DefinitionSection):
    name = "views"
    noun = "view"
    fixed = frozenset({"of"})

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        queues = await reading.queues()
        found = [
            view_entry(name, configs)
            for name, (_, configs) in sorted((await reading.topics()).items())
            if VIEW_OF.name in configs and configs.get(VIEW_SHARED.name) != "true"
        ]
        return [each for each in found if each["name"] not in queues or "configs" in each]

    def settings(self, entry: Entry) -> Mapping[str, Any]:
        return {"of": entry["of"], "filter": entry["filter"], **entry.get("configs", {})}

    def problem(self, entry: Entry) -> str:
        return filter_problem(entry["filter"])

    async def create(self, cluster: ClusterCalls, entry: Entry) -> None:
        configs = {option: entry[name] for name, option in _OPTIONS.items()} | entry.get("configs", {})
        await cluster.topics.create(NewTopic(entry["name"], configs=configs))

    async def change(self, cluster: ClusterCalls, step: ApplyStep) -> None:
        values = {_OPTIONS.get(name, name): each.new for name, each in step.changes.items()}
        await cluster.configs.alter(ConfigResourceType.TOPIC, step.name, values)

    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.topics.delete(entry["name"])

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        if step.action == "differs":
            return
        if step.action != "delete":
            yield "READ", "TOPIC", step.entry["of"]
        yield {"change": "ALTER_CONFIGS"}.get(step.action, step.action.upper()), "TOPIC", step.name


def view_entry(name: str, configs: Mapping[str, str]) -> dict[str, Any]:
    """Entry of a view with these topic configs."""
    more = {option: value for option, value in sorted(configs.items()) if option not in _OPTIONS.values()}
    entry: dict[str, Any] = {
        "name": name,
        "of": configs[VIEW_OF.name],
        "filter": configs.get(VIEW_FILTER.name, "true"),
    }
    return {**entry, "configs": more} if more else entry


def filter_problem(text: str) -> str:
    try:
        Filter(text, 0)
    except ConfigError as error:
        return f"filter: {error}"
    return ""
