"""Export of all definitions, the plan that leads from one document to another, and the execution of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from penstock.config import VIEW_OF
from penstock.config.retry_options import RETRY_GROUP
from penstock.delay.retry_policy import OPTIONS as RETRY_OPTIONS
from penstock.delay.retry_policy import read_policy
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.definitions.acls import AclSection
from penstock.internal_client.definitions.configs import BrokerSection, GroupSection
from penstock.internal_client.definitions.pipelines import PipelineSection
from penstock.internal_client.definitions.queues import QueueSection
from penstock.internal_client.definitions.quotas import QuotaSection
from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.retry_policies import RetryPolicySection, policy_entry
from penstock.internal_client.definitions.schedules import ScheduleSection
from penstock.internal_client.definitions.section import FORMAT, ApplyStep, DefinitionSection, Entry, Outcomes
from penstock.internal_client.definitions.topics import TopicSection
from penstock.internal_client.definitions.users import UserSection
from penstock.internal_client.definitions.views import ViewSection, view_entry
from penstock.internal_client.definitions.webhooks import WebhookSection, own_queue

SECTIONS: Final[Mapping[str, DefinitionSection]] = {
    section.name: section
    for section in (
        UserSection(),
        AclSection(),
        QuotaSection(),
        BrokerSection(),
        TopicSection(),
        ViewSection(),
        GroupSection(),
        RetryPolicySection(),
        QueueSection(),
        WebhookSection(),
        ScheduleSection(),
        PipelineSection(),
    )
}
"""Sections in the order in which their entries are created: access rights before topics, topics before queues."""
Definitions = Mapping[str, Sequence[Entry]]
"""Entries by section. A section that is absent is unknown or is not to be changed."""
_REFUSED: Final = frozenset(
    {
        ErrorCode.cluster_authorization_failed,
        ErrorCode.topic_authorization_failed,
        ErrorCode.security_disabled,
    }
)
_GONE: Final = frozenset(
    {
        ErrorCode.group_id_not_found,
        ErrorCode.resource_not_found,
        ErrorCode.unknown_topic_or_partition,
    }
)


class InvalidDefinition(ValueError):
    """An entry of a document cannot be applied. The text of the error names the entry."""

    def __init__(self, section: str, place: int, text: str) -> None:
        super().__init__(text)
        self.pointer = f"/{section}/{place}"


async def export(reading: DefinitionReading) -> Definitions:
    """Read the definitions of the cluster, without the sections that the user may not read."""
    found: dict[str, Sequence[Entry]] = {}
    for section in SECTIONS.values():
        try:
            found[section.name] = await section.read(reading)
        except BrokerError as error:
            if error.code not in _REFUSED:
                raise
    return found


def document(definitions: Definitions) -> dict[str, Any]:
    """Document that `penstock export` prints."""
    made: dict[str, Any] = {"format": FORMAT, **definitions}
    for entry in definitions.get("brokers", ()):
        made["brokers"] = entry["configs"]
    return made


def read_document(given: Mapping[str, Any]) -> Definitions:
    """Entries of a document whose JSON form is already checked. Raises InvalidDefinition for the first
    invalid entry.
    """
    sections: dict[str, list[Entry]] = {
        name: list(entries) for name, entries in given.items() if name in SECTIONS and name != "brokers"
    }
    if "brokers" in given:
        sections["brokers"] = [{"name": "", "configs": given["brokers"]}]
    if "topics" in sections:
        _split_topics(sections)
    for name, entries in sections.items():
        sections[name] = _checked(SECTIONS[name], entries)
    return sections


def _split_topics(sections: dict[str, list[Entry]]) -> None:
    """Move views and retry policies, which a document may also define by settings of topics, to their own sections."""
    views = sections.setdefault("views", [])
    topics: list[Entry] = []
    for topic in sections["topics"]:
        configs = topic.get("configs", {})
        policy = (
            read_policy(configs.get(RETRY_GROUP.name, ""), configs) if configs.get(RETRY_GROUP.name) else None
        )
        if VIEW_OF.name in configs:
            views.append(view_entry(topic["name"], configs))
            continue
        if policy is not None:
            sections.setdefault("retry_policies", []).append(policy_entry(policy))
            topic = {
                **topic,
                "configs": {name: value for name, value in configs.items() if name not in RETRY_OPTIONS},
            }
        topics.append(topic)
    sections["topics"] = topics


def _checked(section: DefinitionSection, entries: Sequence[Entry]) -> list[Entry]:
    found: list[Entry] = []
    names: set[str] = set()
    for place, entry in enumerate(entries):
        name = section.identity(entry)
        problem = section.problem(entry)
        if name in names:
            problem = "the document names it twice"
        if problem:
            raise InvalidDefinition(section.name, place, f"{section.text('', name).strip()}: {problem}")
        names.add(name)
        found.append(section.normal(entry))
    return found


def plan(present: Definitions, wanted: Definitions, *, prune: bool = False) -> list[ApplyStep]:
    """Return the steps from the present definitions to the wanted ones. Pure.

    With `prune`, entries and settings that are missing from a section of the document are removed. Sections
    that the document does not have are never changed.
    """
    steps = [
        step
        for name, section in SECTIONS.items()
        if name in wanted
        for step in section.plan(present.get(name, ()), wanted[name], prune)
    ]
    made = [step for step in steps if step.action != "delete"]
    removed = [step for step in steps if step.action == "delete"]
    order = list(SECTIONS)
    removed.sort(key=lambda step: -order.index(step.section))  # stable: dependents go first
    return [*_webhooks_first(made), *removed]


def _webhooks_first(steps: list[ApplyStep]) -> list[ApplyStep]:
    """Reorder the steps so that queues of new webhooks come last, because a webhook of a topic creates its
    own queue.
    """
    queues = {
        own_queue(step.entry) for step in steps if step.section == "webhooks" and step.action == "create"
    }
    return sorted(steps, key=lambda step: step.section == "queues" and step.name in queues)


async def carry_out(steps: Sequence[ApplyStep], cluster: ClusterCalls) -> None:
    """Carry out the steps in order. A BrokerError names the first entry that was refused.

    Other entries of the same request may have been created. Deleting an entry that no longer exists succeeds.
    """
    place = 0
    for together in _together(steps):
        for number, (step, error) in enumerate(zip(together, await _make(together, cluster), strict=True)):
            if error is not None and not (step.action == "delete" and error.code in _GONE):
                text = SECTIONS[step.section].text(step.action, step.name)
                at = f" (step {place + number + 1} of {len(steps)})" if len(steps) > 1 else ""
                raise BrokerError(error.code, f"{text}: {error}{at}")
        place += len(together)


async def check(steps: Sequence[ApplyStep], cluster: ClusterCalls) -> list[ApplyStep]:
    """Return the steps with the problems that the cluster reports for entries to create. Nothing is changed."""
    found: list[ApplyStep] = []
    for together in _together(steps):
        outcomes: Outcomes = [None] * len(together)
        if together[0].action == "create":
            outcomes = await SECTIONS[together[0].section].check_each(
                cluster, [step.entry for step in together]
            )
        found += [
            step if error is None else replace(step, problem=str(error))
            for step, error in zip(together, outcomes, strict=True)
        ]
    return found


def _together(steps: Sequence[ApplyStep]) -> Iterator[list[ApplyStep]]:
    """Group neighbouring steps of one section that create, or delete, entries, so that one request can carry
    them out.
    """
    for (section, action), group in groupby(steps, key=lambda step: (step.section, step.action)):
        alike, of = list(group), SECTIONS[section]
        most = {"create": of.created_together, "delete": of.deleted_together}.get(action, 1)
        for first in range(0, len(alike), most):
            yield alike[first : first + most]


async def _make(together: Sequence[ApplyStep], cluster: ClusterCalls) -> Outcomes:
    """Carry out steps of one section together. Returns None or the error for each step, in order."""
    step = together[0]
    section, entries = SECTIONS[step.section], [each.entry for each in together]
    try:
        if step.action == "create":
            return await section.create_each(cluster, entries)
        if step.action == "delete":
            return await section.delete_each(cluster, entries)
        if step.action == "change":
            await section.change(cluster, step)
    except BrokerError as error:
        return [error, *[None] * (len(together) - 1)]
    return [None] * len(together)
