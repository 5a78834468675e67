"""Webhooks of a cluster: create, list, describe, alter, pause, resume, test and delete them, and rotate their
secrets.

A webhook of a topic has a queue of its own, which is created before the webhook and deleted after it. Every
call may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.objects import ObjectCalls
from penstock.internal_client.queues import NewQueue, QueueCalls
from penstock.internal_client.routes import CoordinatorKind, Routes

DEFAULT_CONCURRENCY: Final = 8
DEFAULT_TIMEOUT_MS: Final = 10_000
DEFAULT_FORMAT: Final = "raw"
FORMATS: Final = ("raw", "cloudevent")
QUEUE_PREFIX: Final = "webhook-"
"""Prefix of the names of queues that are created for webhooks of topics."""
_MAX_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """Webhook to create, for an existing queue or for a topic."""

    name: str
    url: str
    queue: str = ""
    topic: str = ""
    filter: str = ""
    """Filter for the messages of a topic; empty for all messages."""
    concurrency: int = DEFAULT_CONCURRENCY
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    format: str = DEFAULT_FORMAT
    secret: str = ""
    """Secret that signs the calls. If it is empty, a random secret is chosen."""

    def __repr__(self) -> str:
        return f"NewWebhook({self.name!r})"


@dataclass(frozen=True, slots=True)
class WebhookSummary:
    name: str
    queue: str
    topic: str
    """Topic, if the queue was created for the webhook; empty for an existing queue."""
    filter: str
    url: str
    concurrency: int
    timeout_ms: int
    format: str
    paused: bool
    paused_reason: str
    owner: int
    """Broker that makes the calls; -1 if no broker has begun."""


@dataclass(frozen=True, slots=True)
class WebhookDetails:
    """Webhook with statistics of its calls since its current owner began. Times are milliseconds since the epoch."""

    summary: WebhookSummary
    created_ms: int
    secrets: int
    """Number of secrets that sign calls, which is two during a rotation."""
    successes: int = 0
    failures: int = 0
    last_status: int | None = None
    last_error: str = ""
    last_call_ms: int | None = None
    last_latency_ms: float = 0.0
    problem: str = ""
    """Reason why the queue cannot be read; empty if it can."""
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class CreatedWebhook:
    details: WebhookDetails
    secret: str
    """Secret that was chosen for the webhook; empty if the caller gave one. It is not shown again."""


@dataclass(frozen=True, slots=True)
class TestedWebhook:
    ok: bool
    status: int | None
    """HTTP status of the response; None if there was none."""
    latency_ms: float
    error: str


class WebhookCalls:
    def __init__(self, routes: Routes, queues: QueueCalls) -> None:
        self._objects = ObjectCalls(routes, CoordinatorKind.WEBHOOK)
        self._queues = queues

    async def all(self) -> list[WebhookSummary]:
        """All webhooks that the user may see, sorted by name."""
        return [WebhookSummary(**each) for each in await self._objects.all()]

    async def create(self, new: NewWebhook) -> CreatedWebhook:
        """Create a webhook. Raises DUPLICATE_RESOURCE if the name is taken."""
        self._check(new)
        definition: dict[str, Any] = {
            "queue": new.queue or f"{QUEUE_PREFIX}{new.name}",
            "url": new.url,
            "topic": new.topic,
            "filter": new.filter,
            "concurrency": new.concurrency,
            "timeout_ms": new.timeout_ms,
            "format": new.format,
        }
        arguments: dict[str, Any] = {"definition": definition}
        if new.secret:
            arguments["secret"] = new.secret
        drawn = await self._prepare(new.name, arguments)
        secret = new.secret or drawn
        if new.topic:
            await self._create_queue(new, definition["queue"])
        # The chosen secret is random, so it also identifies this request.
        arguments |= {"secret": secret, "token": drawn[-32:]}
        try:
            answer = await self._objects.call(new.name, "create", arguments)
        except BrokerError:
            if new.topic:
                await self._delete_queue(definition["queue"])
            raise
        return CreatedWebhook(_details(answer), "" if new.secret else secret)

    def _check(self, new: NewWebhook) -> None:
        if bool(new.queue) == bool(new.topic):
            raise _invalid("a webhook needs a queue or a topic, and not both")
        if new.filter and not new.topic:
            raise _invalid("a filter needs a topic; a queue has the messages that it was created for")
        if not 0 < len(new.name) <= _MAX_NAME:
            raise _invalid(f"the name of a webhook has 1 to {_MAX_NAME} characters")
        if not all(each.isascii() and (each.isalnum() or each in "._-") for each in new.name):
            raise _invalid(f"{new.name[:80]!r} has characters besides letters, digits, '.', '_' and '-'")

    async def _create_queue(self, new: NewWebhook, name: str) -> None:
        """Create the queue of a webhook of a topic. It starts with messages that are sent from now on."""
        if await self._exists(new.name):
            raise BrokerError(
                ErrorCode.duplicate_resource,
                f"there is a webhook {new.name!r} already; delete it first or choose another name",
            )
        dead_letter = {"dead_letter": f"{name}-dead"}
        await self._queues.create(
            NewQueue(name, new.topic, settings=dead_letter, is_from_end=True, filter=new.filter)
        )

    async def _exists(self, name: str) -> bool:
        try:
            await self._objects.call(name, "describe")
        except BrokerError as error:
            if error.code is not ErrorCode.resource_not_found:
                raise
            return False
        return True

    async def _delete_queue(self, name: str) -> None:
        try:
            await self._queues.delete(name)
        except BrokerError as error:
            if error.code is not ErrorCode.group_id_not_found:
                raise

    async def _prepare(self, name: str, arguments: dict[str, Any]) -> str:
        """Let the broker check a definition before anything is created. Returns a random secret."""
        return str((await self._objects.call(name, "prepare", arguments))["secret"])

    async def describe(self, name: str) -> WebhookDetails:
        """Describe a webhook. Raises RESOURCE_NOT_FOUND if it does not exist."""
        return _details(await self._objects.call(name, "describe"))

    async def alter(self, name: str, changes: Mapping[str, object]) -> WebhookDetails:
        """Change `url`, `concurrency`, `timeout_ms` or `format` of a webhook."""
        return _details(await self._objects.call(name, "alter", {"changes": dict(changes)}))

    async def pause(self, name: str) -> WebhookDetails:
        return _details(await self._objects.call(name, "pause"))

    async def resume(self, name: str) -> WebhookDetails:
        return _details(await self._objects.call(name, "resume"))

    async def rotate_secret(self, name: str, secret: str, overlap_ms: int) -> CreatedWebhook:
        """Give a webhook a new secret. The old secret also signs calls for another `overlap_ms`."""
        chosen = secret or await self._prepare(name, {})
        answer = await self._objects.call(name, "rotate", {"secret": chosen, "overlap_ms": overlap_ms})
        return CreatedWebhook(_details(answer), "" if secret else chosen)

    async def test(self, name: str) -> TestedWebhook:
        """Call the receiver once with a test message."""
        return TestedWebhook(**await self._objects.call(name, "test"))

    async def delete(self, name: str) -> None:
        """Delete a webhook and the queue that was created for it. Its dead letters stay."""
        details = await self.describe(name)
        await self._objects.call(name, "delete")
        if details.summary.topic:
            await self._delete_queue(details.summary.queue)


def _details(answer: dict[str, Any]) -> WebhookDetails:
    summary = {name: answer.pop(name) for name in WebhookSummary.__dataclass_fields__}
    return WebhookDetails(WebhookSummary(**summary), **answer)


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, text)
