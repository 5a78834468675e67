"""Calls of clients about webhooks, with their rights.

READ on the queue (a group) and on its topic gives the right to create, pause, resume, test and delete a webhook and to
change its secret; DESCRIBE on the queue to see it. Secrets are part of no answer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.config import SHARE_QUEUE_TOPIC
from penstock.errors import BrokerError, ErrorCode
from penstock.objects.coordinator import ObjectCoordinator
from penstock.objects.shard import ObjectShard
from penstock.server.objects.served import Arguments, ServedKind
from penstock.server.security import Operation, ResourceType
from penstock.webhooks import webhook as states
from penstock.webhooks.agent import WebhookAgent
from penstock.webhooks.http_connection import CallFailed
from penstock.webhooks.receiver_url import InvalidUrl, parse_url
from penstock.webhooks.request import FORMATS
from penstock.webhooks.sealing import NONCE_BYTES, CannotUnseal, seal, unseal
from penstock.webhooks.signing import KEY_BYTES, key_of, new_secret
from penstock.webhooks.webhook import Definition, Webhook

if TYPE_CHECKING:
    from penstock.server.dispatch import Request

_MAX_TOKEN_CHARACTERS: Final = 64


# --- verbs


async def _prepare(request: Request, name: str, arguments: Arguments) -> Any:
    """Check the definition of a webhook that is to be created, and draw a secret. Nothing is stored."""
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
    webhook = states.new_webhook(definition, sealed, request.context.clock.now_ms(), _token(arguments))
    shard = _shard(request, name)
    known = shard.states.get(name)
    if known is None or not webhook.token or known.token != webhook.token:
        await shard.create(name, webhook)
    return await _describe(request, name, arguments)


async def _describe(request: Request, name: str, arguments: Arguments) -> Any:
    shard = _shard(request, name)
    _require(request, shard, name, Operation.DESCRIBE)
    return _show(request, name, await shard.read(name), shard)


async def _pause(request: Request, name: str, arguments: Arguments) -> Any:
    shard = _shard(request, name)
    _require(request, shard, name, Operation.READ)
    await shard.update(name, partial(states.pause, reason=""))
    return await _describe(request, name, arguments)


async def _resume(request: Request, name: str, arguments: Arguments) -> Any:
    shard = _shard(request, name)
    _require(request, shard, name, Operation.READ)
    await shard.update(name, states.resume)
    return await _describe(request, name, arguments)


async def _rotate(request: Request, name: str, arguments: Arguments) -> Any:
    """Replace the secret. A repeated request with the same secret changes nothing."""
    shard = _shard(request, name)
    _require(request, shard, name, Operation.READ)
    overlap_ms = arguments.get("overlap_ms", states.DEFAULT_OVERLAP_MS)
    if not isinstance(overlap_ms, int) or not 0 <= overlap_ms <= states.MAX_OVERLAP_MS:
        raise _invalid(f"the old secret can stay in force for 0 to {states.MAX_OVERLAP_MS} ms")
    sealed = _seal(request, name, arguments)
    until_ms = request.context.clock.now_ms() + overlap_ms

    def decide(webhook: Webhook) -> Webhook:
        return (
            webhook
            if _same_secret(request, name, webhook, sealed)
            else states.rotate(webhook, sealed, until_ms)
        )

    await shard.update(name, decide)
    return await _describe(request, name, arguments)


async def _test(request: Request, name: str, arguments: Arguments) -> Any:
    """Call the receiver with a test message."""
    shard = _shard(request, name)
    _require(request, shard, name, Operation.READ)
    await shard.read(name)
    agent = shard.agent_of(name)
    if not isinstance(agent, WebhookAgent):
        raise BrokerError(ErrorCode.coordinator_not_available)
    return await agent.test(_random_bytes(request, 8).hex())


async def _delete(request: Request, name: str, arguments: Arguments) -> Any:
    shard = _shard(request, name)
    _require(request, shard, name, Operation.READ)
    await shard.delete(name)
    return {"name": name}


# --- checks


def _read_definition(arguments: Arguments) -> Definition:
    try:
        return msgspec.convert(arguments.get("definition"), Definition)
    except msgspec.ValidationError as error:
        raise _invalid(f"wrong definition of a webhook: {error}") from None


async def _check_definition(request: Request, definition: Definition) -> None:
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
        raise _invalid(f"wrong URL: {error}") from None


def _require_queue(request: Request, queue: str) -> None:
    """Refuse a webhook of a queue that does not exist, or that the client may not read."""
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


def _require(request: Request, shard: ObjectShard[Webhook], name: str, operation: Operation) -> None:
    """Refuse a request for a webhook that the client may not see as if it did not exist."""
    shard.check_open()
    known = shard.states.get(name)
    if known is None or not request.shows(Operation.DESCRIBE, ResourceType.GROUP, known.definition.queue):
        raise BrokerError(ErrorCode.resource_not_found, f"there is no webhook {name[:80]!r}")
    request.require(operation, ResourceType.GROUP, known.definition.queue)


def _shard(request: Request, name: str) -> ObjectShard[Webhook]:
    return request.context.objects.webhook_services.coordinator.shard_of(name)


def _token(arguments: Arguments) -> str:
    token = arguments.get("token", "")
    if not isinstance(token, str) or len(token) > _MAX_TOKEN_CHARACTERS:
        raise _invalid("the token is no short text")
    return token


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, text)


# --- secrets


def _seal(request: Request, name: str, arguments: Arguments) -> bytes:
    secret = arguments.get("secret")
    try:
        key_of(secret if isinstance(secret, str) else "")
    except ValueError as error:
        raise _invalid(f"wrong secret: {error}") from None
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
    if not request.shows(Operation.DESCRIBE, ResourceType.GROUP, definition.queue):
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


def served_webhooks(coordinator: ObjectCoordinator[Webhook]) -> ServedKind:
    calls = {
        "prepare": _prepare,
        "create": _create,
        "describe": _describe,
        "pause": _pause,
        "resume": _resume,
        "rotate": _rotate,
        "test": _test,
        "delete": _delete,
    }
    return ServedKind(coordinator, calls, frozenset(calls) - {"describe", "prepare"}, _entry)
