"""Webhooks in a definitions document, without their secrets. A new webhook gets a new secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.section import ApplyStep, DefinitionSection, Entry, Right
from penstock.internal_client.webhooks import (
    DEFAULT_CONCURRENCY,
    DEFAULT_FORMAT,
    DEFAULT_TIMEOUT_MS,
    QUEUE_PREFIX,
    NewWebhook,
    WebhookSummary,
)


class WebhookSection(DefinitionSection):
    name = "webhooks"
    noun = "webhook"
    defaults: ClassVar[Mapping[str, Any]] = {
        "concurrency": DEFAULT_CONCURRENCY,
        "timeout_s": DEFAULT_TIMEOUT_MS / 1000,
        "format": DEFAULT_FORMAT,
        "paused": False,
    }
    fixed = frozenset({"queue", "topic", "filter"})
    creation_note = " with a new secret; `penstock webhook rotate-secret` shows one"

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        return [_entry(each) for each in await reading.cluster.webhooks.all()]

    def problem(self, entry: Entry) -> str:
        if ("queue" in entry) == ("topic" in entry):
            return "a webhook needs a queue or a topic, and not both"
        return "a filter needs a topic" if "filter" in entry and "topic" not in entry else ""

    async def create(self, cluster: ClusterCalls, entry: Entry) -> None:
        full = {**self.defaults, "queue": "", "topic": "", "filter": "", **entry}
        await cluster.webhooks.create(
            NewWebhook(
                full["name"],
                full["url"],
                full["queue"],
                full["topic"],
                full["filter"],
                full["concurrency"],
                round(full["timeout_s"] * 1000),
                full["format"],
            )
        )
        if full["paused"]:
            await cluster.webhooks.pause(full["name"])

    async def change(self, cluster: ClusterCalls, step: ApplyStep) -> None:
        calls, changed = cluster.webhooks, {name: each.new for name, each in step.changes.items()}
        paused, timeout_s = changed.pop("paused", None), changed.pop("timeout_s", None)
        if timeout_s is not None:
            changed["timeout_ms"] = round(timeout_s * 1000)
        if changed:
            await calls.alter(step.name, changed)
        if paused is not None:
            await (calls.pause if paused else calls.resume)(step.name)

    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.webhooks.delete(entry["name"])

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        yield "READ", "GROUP", own_queue(step.entry) or step.entry["queue"]
        if "topic" in step.entry:
            yield "READ", "TOPIC", step.entry["topic"]


def own_queue(entry: Entry) -> str:
    """Name of the queue that a webhook of a topic creates and deletes; empty for a webhook of an existing queue."""
    return f"{QUEUE_PREFIX}{entry['name']}" if "topic" in entry else ""


def _entry(webhook: WebhookSummary) -> Entry:
    entry: dict[str, Any] = {"name": webhook.name, "url": webhook.url}
    if webhook.topic:
        entry |= {"topic": webhook.topic, **({"filter": webhook.filter} if webhook.filter else {})}
    else:
        entry["queue"] = webhook.queue
    return {
        **entry,
        "concurrency": webhook.concurrency,
        "timeout_s": webhook.timeout_ms / 1000,
        "format": webhook.format,
        "paused": webhook.paused,
    }
