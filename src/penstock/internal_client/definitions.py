"""Definitions of a cluster as one document: topics with their settings, and settings of all brokers.

`export` reads the document, `plan` compares it with another one, `carry_out` makes the steps of a plan. Internal
topics and sensitive settings are left out. A plan never lowers a number of partitions and never moves replicas:
it says that they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.config import VIEW_OF
from penstock.config.resources import ConfigResourceType
from penstock.internal_client.configs import Changes, ConfigCalls, ConfigEntry
from penstock.internal_client.topics import NewTopic, TopicCalls

FORMAT = 1
TOPICS_PER_REQUEST = 20
"""Few, because the broker describes all settings of the topics of a request at once."""


@dataclass(frozen=True, slots=True)
class DefinedTopic:
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)
    """Settings that are set on the topic itself."""

    @property
    def is_view(self) -> bool:
        """True for a view, whose partitions and replicas are those of its source."""
        return VIEW_OF.name in self.configs


@dataclass(frozen=True, slots=True)
class Definitions:
    topics: Mapping[str, DefinedTopic]
    brokers: Mapping[str, str] = field(default_factory=dict)
    """Settings of all brokers that are set in the cluster."""

    def document(self) -> dict[str, Any]:
        topics = [
            {
                "name": topic.name,
                "partitions": topic.partitions,
                "replication_factor": topic.replication_factor,
                "configs": dict(sorted(topic.configs.items())),
            }
            for _, topic in sorted(self.topics.items())
        ]
        return {"format": FORMAT, "topics": topics, "brokers": dict(sorted(self.brokers.items()))}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Definitions:
        """Read a document whose form was checked; -1 stands for the default of the broker."""
        topics = {
            each["name"]: DefinedTopic(
                each["name"],
                each.get("partitions", -1),
                each.get("replication_factor", -1),
                each.get("configs", {}),
            )
            for each in document.get("topics", ())
        }
        return cls(topics, document.get("brokers", {}))


@dataclass(frozen=True, slots=True)
class Step:
    action: str
    """`create`, `add_partitions`, `configure`, `configure_brokers`, `delete`; `differs` changes nothing."""
    topic: str
    text: str
    """The step for people."""
    new: DefinedTopic | None = None
    changes: Changes = field(default_factory=dict)


async def export(topics: TopicCalls, configs: ConfigCalls) -> Definitions:
    """Read the definitions of the cluster."""
    routes = [topic for topic in await topics.all() if not topic.is_internal]
    found: dict[str, DefinedTopic] = {}
    for first in range(0, len(routes), TOPICS_PER_REQUEST):
        some = routes[first : first + TOPICS_PER_REQUEST]
        entries = await configs.describe(ConfigResourceType.TOPIC, [topic.name for topic in some])
        for topic in some:
            factor = max(len(partition.replicas) for partition in topic.partitions)
            found[topic.name] = DefinedTopic(
                topic.name, len(topic.partitions), factor, _own(entries[topic.name])
            )
    return Definitions(found, _own(await configs.get(ConfigResourceType.BROKER, "")))


def plan(present: Definitions, wanted: Definitions, *, prune: bool = False) -> list[Step]:
    """Return the steps from the present definitions to the wanted ones.

    With `prune`, topics and settings that the document does not name are removed too. Pure.
    """
    steps = [
        step
        for topic in sorted(wanted.topics.values(), key=_sources_first)
        for step in _topic_steps(present.topics.get(topic.name), topic, prune)
    ]
    changes = _changes(present.brokers, wanted.brokers, prune)
    if changes:
        steps.append(
            Step("configure_brokers", "", f"set for all brokers: {_listed(changes)}", changes=changes)
        )
    if prune:
        surplus = [topic for name, topic in present.topics.items() if name not in wanted.topics]
        for topic in sorted(surplus, key=lambda each: (not each.is_view, each.name)):
            what = f"view {topic.name}" if topic.is_view else f"topic {topic.name} with all of its messages"
            steps.append(Step("delete", topic.name, f"delete {what}"))
    return steps


async def carry_out(step: Step, topics: TopicCalls, configs: ConfigCalls) -> None:
    if step.action == "create":
        assert step.new is not None
        new = step.new
        layout = (-1, -1) if new.is_view else (new.partitions, new.replication_factor)
        await topics.create(NewTopic(new.name, *layout, new.configs))
    elif step.action == "add_partitions":
        assert step.new is not None
        await topics.set_partitions(step.topic, step.new.partitions)
    elif step.action == "configure":
        await configs.alter(ConfigResourceType.TOPIC, step.topic, step.changes)
    elif step.action == "configure_brokers":
        await configs.alter(ConfigResourceType.BROKER, "", step.changes)
    elif step.action == "delete":
        await topics.delete(step.topic)


def _topic_steps(present: DefinedTopic | None, wanted: DefinedTopic, prune: bool) -> Iterator[Step]:
    name = wanted.name
    if present is None:
        yield Step("create", name, f"create {'view' if wanted.is_view else 'topic'} {name}", wanted)
        return
    if not wanted.is_view:
        yield from _layout_steps(present, wanted)
    changes = _changes(present.configs, wanted.configs, prune)
    if changes:
        yield Step("configure", name, f"set for {name}: {_listed(changes)}", changes=changes)


def _layout_steps(present: DefinedTopic, wanted: DefinedTopic) -> Iterator[Step]:
    name = wanted.name
    if wanted.partitions > present.partitions:
        text = f"add partitions to {name}: {present.partitions} to {wanted.partitions}"
        yield Step("add_partitions", name, text, wanted)
    elif 0 < wanted.partitions < present.partitions:
        text = (
            f"{name} has {present.partitions} partitions, not {wanted.partitions}; "
            "`penstock topic alter` lowers the number"
        )
        yield Step("differs", name, text)
    if wanted.replication_factor not in (-1, present.replication_factor):
        text = (
            f"{name} has {present.replication_factor} replicas, not {wanted.replication_factor}; "
            "`penstock cluster` changes them"
        )
        yield Step("differs", name, text)


def _sources_first(topic: DefinedTopic) -> tuple[bool, str]:
    """Order in which topics are created: a view needs its source."""
    return topic.is_view, topic.name


def _changes(present: Mapping[str, str], wanted: Mapping[str, str], prune: bool) -> dict[str, str | None]:
    changes: dict[str, str | None] = {
        name: value for name, value in wanted.items() if present.get(name) != value
    }
    if prune:
        changes |= dict.fromkeys(present.keys() - wanted.keys())
    return changes


def _listed(changes: Changes) -> str:
    return ", ".join(
        f"{name} to its default" if value is None else f"{name}={value}"
        for name, value in sorted(changes.items())
    )


def _own(entries: Sequence[ConfigEntry]) -> dict[str, str]:
    """Return the settings that were set on the resource itself."""
    return {
        entry.name: entry.value
        for entry in entries
        if not entry.is_default and not entry.is_sensitive and entry.value is not None
    }
