"""Calls of clients about webhooks, with their checks of rights.

To create a webhook a user needs READ on the queue (a group) and on its topic. With READ on the queue a user may alter,
pause, resume, test and delete the webhook, and replace its secret; with DESCRIBE on the queue a user may see it. Stored
secrets are never sent to clients.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.config import SHARE_QUEUE_TOPIC
from penstock.errors import BrokerError, ErrorCode
from penstock.objects.coordinator import ObjectCoordinator
from penstock.objects.shard import ObjectShard
from penstock.server.objects.object_calls import ServedCalls, token_of
from penstock.server.objects.served import Arguments, ServedKind
from penstock.server.security import Operation, ResourceType
from penstock.webhooks import webhook as states
from penstock.webhooks.agent import WebhookAgent
from penstock.webhooks.http_connection import CallFailed
from penstock.webhooks.receiver_url import InvalidUrl, parse_url
from penstock.webhooks.request import FORMATS
from penstock.webhooks.sealing import NONCE_BYTES, CannotUnseal, seal, unseal
from penstock.webhooks.signing import KEY_BYTES, key_of, new_secret
from penstock.webhooks.webhook import Webhook, WebhookDefinition

if TYPE_CHECKING:
    from penstock.server.dispatch import Request

# --- verbs


async def _prepare(request: Request, name: str, arguments: Arguments) -> Any:
    """Check the definition and the secret of a webhook before it is created, and return a new random secret. Nothing is
    stored.
    """
    if "definition" in arguments:
        await _check_definition(request, _read_definition(arguments))
    if "secret" in arguments:
        _seal(request, name, arguments)
    return {"secret": new_secret(_random_bytes(request, KEY_BYTES))}


async def _create(request: Request, name: str, arguments: Arguments) -> Any:
    """Create a webhook. A repeated request with the same token succeeds."""
    definition = _read_definition(arguments)
    _require_queue(request, definition.queue)
    await _check_definition(request, definition)
    sealed = _seal(request, name, arguments)
    token = token_of(arguments)
    webhook = states.new_webhook(definition, sealed, request.context.clock.now_ms(), token)
    return await _CALLS.create(request, name, webhook, token)


async def _alter(request: Request, name: str, arguments: Arguments) -> Any:
    """Change fields of the definition. Calls to the receiver that have begun are not affected."""
    shard = _CALLS.changeable(request, name)
    changes = _read_changes(arguments)
    await _check_definition(request, states.alter(await shard.read(name), changes).definition)
    return await _CALLS.update(request, name, partial(states.alter, changes=changes))


async def _rotate(request: Request, name: str, arguments: Arguments) -> Any:
    """Replace the secret; the old secret stays in force for `overlap_ms`. A repeated request with the same secret
    changes nothing.
    """
    _CALLS.changeable(request, name)
    overlap_ms = arguments.get("overlap_ms", states.DEFAULT_OVERLAP_MS)
    if not isinstance(overlap_ms, int) or not 0 <= overlap_ms <= states.MAX_OVERLAP_MS:
        raise _invalid(f"the old secret can stay valid for 0 to {states.MAX_OVERLAP_MS} ms")
    sealed = _seal(request, name, arguments)
    until_ms = request.context.clock.now_ms() + overlap_ms

    def decide(webhook: Webhook) -> Webhook:
        return (
            webhook
            if _same_secret(request, name, webhook, sealed)
            else states.rotate(webhook, sealed, until_ms)
        )

    return await _CALLS.update(request, name, decide)


async def _test(request: Request, name: str, arguments: Arguments) -> Any:
    """Call the receiver with a test message."""
    shard = _CALLS.changeable(request, name)
    await shard.read(name)
    agent = shard.agent_of(name)
    if not isinstance(agent, WebhookAgent):
        raise BrokerError(ErrorCode.coordinator_not_available)
    return await agent.test(_random_bytes(request, 8).hex())


# --- checks


def _read_definition(arguments: Arguments) -> WebhookDefinition:
    try:
        return msgspec.convert(arguments.get("definition"), WebhookDefinition)
    except msgspec.ValidationError as error:
        raise _invalid(f"invalid definition of a webhook: {error}") from None


def _read_changes(arguments: Arguments) -> dict[str, Any]:
    changes = arguments.get("changes")
    if not isinstance(changes, dict) or not changes or not changes.keys() <= set(states.ALTERABLE):
        raise _invalid(
            f"give changes of {', '.join(states.ALTERABLE)}; other fields of a webhook cannot be changed"
        )
    try:
        checked = msgspec.convert({"queue": "", "url": "", **changes}, WebhookDefinition)
    except msgspec.ValidationError as error:
        raise _invalid(f"invalid changes of a webhook: {error}") from None
    return {name: getattr(checked, name) for name in changes}


async def _check_definition(request: Request, definition: WebhookDefinition) -> None:
    limits = (
        ("concurrency", definition.concurrency, 1, states.MAX_CONCURRENCY),
        ("timeout_ms", definition.timeout_ms, states.MIN_TIMEOUT_MS, states.MAX_TIMEOUT_MS),
    )
    for field, value, low, high in limits:
        if not low <= value <= high:
            raise _invalid(f"{field}={value}: give a number from {low} to {high}")
    if definition.format not in FORMATS:
        raise _invalid(f"unknown format {definition.format[:80]!r}; use one of {', '.join(FORMATS)}")
    try:
        receiver = parse_url(definition.url)
        await request.context.objects.webhook_services.caller.check(receiver)
    except (InvalidUrl, CallFailed) as error:
        raise _invalid(f"invalid URL: {error}") from None


def _require_queue(request: Request, queue: str) -> None:
    """Raise BrokerError if the queue does not exist, or the client may not read it and its topic."""
    request.require(Operation.READ, ResourceType.GROUP, queue)
    topic = queue_topic(request, queue)
    if not topic:
        raise BrokerError(
            ErrorCode.group_id_not_found,
            f"there is no queue {queue[:80]!r}; `penstock queue create {queue[:80]}` creates it",
        )
    request.require(Operation.READ, ResourceType.TOPIC, topic)


def queue_topic(request: Request, queue: str) -> str:
    """Topic of a queue; empty if there is no such queue."""
    own = request.context.image.group_configs.get(queue)
    return "" if own is None else str(own.values.get(SHARE_QUEUE_TOPIC.name) or "")


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, text)


# --- secrets


def _seal(request: Request, name: str, arguments: Arguments) -> bytes:
    secret = arguments.get("secret")
    try:
        key_of(secret if isinstance(secret, str) else "")
    except ValueError as error:
        raise _invalid(f"invalid secret: {error}") from None
    assert isinstance(secret, str)
    services = request.context.objects.webhook_services
    return seal(services.cluster_secret, name, secret, _random_bytes(request, NONCE_BYTES))


def _same_secret(request: Request, name: str, webhook: Webhook, sealed: bytes) -> bool:
    cluster_secret = request.context.objects.webhook_services.cluster_secret
    try:
        present = unseal(cluster_secret, name, webhook.secrets[0].sealed)
    except CannotUnseal:
        return False
    return present == unseal(cluster_secret, name, sealed)


def _random_bytes(request: Request, count: int) -> bytes:
    return request.context.random.getrandbits(8 * count).to_bytes(count, "big")


# --- answers


def _entry(request: Request, name: str, webhook: Webhook) -> dict[str, Any] | None:
    definition = webhook.definition
    if not _CALLS.shows(request, webhook):
        return None
    return {
        "name": name,
        "queue": definition.queue,
        "topic": definition.topic,
        "filter": definition.filter,
        "url": definition.url,
        "concurrency": definition.concurrency,
        "timeout_ms": definition.timeout_ms,
        "format": definition.format,
        "paused": webhook.is_paused,
        "paused_reason": webhook.paused_reason,
        "owner": webhook.owner,
    }


def _show(request: Request, name: str, webhook: Webhook, shard: ObjectShard[Webhook]) -> dict[str, Any]:
    agent = shard.agent_of(name)
    shown: dict[str, Any] = {
        **(_entry(request, name, webhook) or {}),
        "created_ms": webhook.created_ms,
        "secrets": len(states.secrets_in_force(webhook, request.context.clock.now_ms())),
    }
    if isinstance(agent, WebhookAgent):
        shown |= agent.figures.shown() | {"in_flight": agent.in_flight}
    return shown


def _coordinator(request: Request) -> ObjectCoordinator[Webhook]:
    return request.context.objects.webhook_services.coordinator


_CALLS: Final = ServedCalls(
    "webhook",
    coordinator_of=_coordinator,
    resource_type=ResourceType.GROUP,
    resource_of=lambda webhook: webhook.definition.queue,
    change_operation=Operation.READ,
    show=_show,
)


def served_webhooks(coordinator: ObjectCoordinator[Webhook]) -> ServedKind:
    calls = {
        "prepare": _prepare,
        "create": _create,
        "describe": _CALLS.describe,
        "alter": _alter,
        "pause": _CALLS.updating(lambda _: partial(states.pause, reason="")),
        "resume": _CALLS.updating(lambda _: states.resume),
        "rotate": _rotate,
        "test": _test,
        "delete": _CALLS.delete,
    }
    return ServedKind(coordinator, calls, frozenset(calls) - {"describe", "prepare"}, _entry)
