"""Queues in a definitions document: the topics that they read, and the settings that differ from the defaults."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.section import ApplyStep, DefinitionSection, Entry, Right
from penstock.internal_client.definitions.views import filter_problem
from penstock.internal_client.queue_settings import shown_settings, stored_settings
from penstock.internal_client.queues import SETTINGS, NewQueue, QueueSummary


class QueueSection(DefinitionSection):
    name = "queues"
    noun = "queue"
    fixed = frozenset({"of"})
    deletion_note = ", whose messages are no longer delivered"

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        configs = await reading.groups()
        return [_entry(queue, configs[name]) for name, queue in sorted((await reading.queues()).items())]

    def problem(self, entry: Entry) -> str:
        try:
            stored_settings(entry)
        except ValueError as error:
            return str(error)
        if entry.get("filter") and "of" not in entry:
            return "a filter needs `of`, the topic to select messages from"
        return filter_problem(entry["filter"]) if entry.get("filter") else ""

    def normal(self, entry: Entry) -> Entry:
        stored = {name: value for name, value in stored_settings(entry).items() if value is not None}
        place = {name: entry[name] for name in ("name", "of", "filter") if name in entry}
        return {**place, **shown_settings(stored)}

    async def create(self, cluster: ClusterCalls, entry: Entry) -> None:
        """Create a queue. If its webhook has created the queue meanwhile, only the settings are applied."""
        name, of = entry["name"], entry.get("of")
        settings = stored_settings(entry)
        if of is None and await _has_topic(cluster, name):
            of = name
        filter_text = entry.get("filter", "")
        values = {each: value for each, value in settings.items() if value is not None}
        try:
            await cluster.queues.create(NewQueue(name, of, settings=values, filter=filter_text))
        except BrokerError as error:
            if error.code is not ErrorCode.duplicate_resource:
                raise
            await cluster.queues.alter(name, settings)

    async def change(self, cluster: ClusterCalls, step: ApplyStep) -> None:
        changed = {name: each.new for name, each in step.changes.items()}
        filter_text = changed.pop("filter", None) or ""
        await cluster.queues.alter(step.name, stored_settings(changed), filter_text)

    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None:
        """Delete a queue and, if it reads a view of its own, the view. The queue's own topic stays: it is an
        entry of its own.
        """
        await cluster.queues.delete(entry["name"], keeps_topic="filter" not in entry)

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        entry, name = step.entry, step.name
        if step.action == "delete":
            yield "DELETE", "GROUP", name
            if "filter" in entry:
                yield "DELETE", "TOPIC", name
        elif step.action in ("create", "change"):
            yield "ALTER_CONFIGS", "GROUP", name
            if step.action == "create":
                yield "READ", "GROUP", name
                yield "READ", "TOPIC", entry.get("of", name)
                if "of" not in entry or "filter" in entry:
                    yield "CREATE", "TOPIC", name
            elif "filter" in step.changes:
                yield "ALTER_CONFIGS", "TOPIC", name
            if entry.get("dead_letter"):
                yield "WRITE", "TOPIC", entry["dead_letter"]


def _entry(queue: QueueSummary, configs: dict[str, str]) -> Entry:
    stored = {name: configs[option] for name, option in SETTINGS.items() if option in configs}
    place = {"name": queue.name}
    if queue.sent_to != queue.name:
        place["of"] = queue.sent_to
    if queue.filter:
        place["filter"] = queue.filter
    return {**place, **shown_settings(stored)}


async def _has_topic(cluster: ClusterCalls, name: str) -> bool:
    try:
        await cluster.topics.get(name, fresh=True)
    except BrokerError as error:
        if error.code is not ErrorCode.unknown_topic_or_partition:
            raise
        return False
    return True
