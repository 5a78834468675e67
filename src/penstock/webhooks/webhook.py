"""State of a webhook: its definition, its sealed secrets, and whether it is paused. Pure.

States are immutable: each change returns a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.webhooks.request import RAW

DEFAULT_CONCURRENCY: Final = 8
MAX_CONCURRENCY: Final = 256
DEFAULT_TIMEOUT_MS: Final = 10_000
MIN_TIMEOUT_MS: Final = 10
MAX_TIMEOUT_MS: Final = 300_000
DEFAULT_OVERLAP_MS: Final = 24 * 3_600_000
ALTERABLE: Final = ("url", "concurrency", "timeout_ms", "format")
"""Fields of a definition that can be changed. Queue, topic and filter cannot."""
MAX_OVERLAP_MS: Final = 30 * 24 * 3_600_000


class WebhookDefinition(msgspec.Struct, frozen=True):
    queue: str
    url: str
    topic: str = ""
    """Topic of a queue that was created for the webhook and is deleted with it; empty for an existing queue."""
    filter: str = ""
    """Filter of that queue; empty for all messages of the topic."""
    concurrency: int = DEFAULT_CONCURRENCY
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    format: str = RAW


class SealedSecret(msgspec.Struct, frozen=True):
    sealed: bytes
    until_ms: int | None = None
    """Time from which calls are no longer signed with this secret; None for the current secret."""


class Webhook(msgspec.Struct, frozen=True):
    definition: WebhookDefinition
    secrets: tuple[SealedSecret, ...]
    """Current secret, followed by the previous one if there is one."""
    created_ms: int
    token: str = ""
    """Token of the request that created the webhook; a retry with the same token succeeds. Empty without one."""
    is_paused: bool = False
    paused_reason: str = ""
    term: int = 0
    """Number of the present term. An owner begins a new term when it takes over and after each error."""
    owner: int = -1
    """Id of the broker that makes the calls in this term."""


def new_webhook(definition: WebhookDefinition, sealed: bytes, now_ms: int, token: str) -> Webhook:
    return Webhook(definition, (SealedSecret(sealed),), now_ms, token)


def take_over(webhook: Webhook, owner: int) -> Webhook:
    """Begin a new term with this owner. The owner makes calls only after the new state is committed."""
    return msgspec.structs.replace(webhook, term=webhook.term + 1, owner=owner)


def pause(webhook: Webhook, reason: str) -> Webhook:
    if webhook.is_paused:
        return webhook
    return msgspec.structs.replace(webhook, is_paused=True, paused_reason=reason)


def resume(webhook: Webhook) -> Webhook:
    if not webhook.is_paused:
        return webhook
    return msgspec.structs.replace(webhook, is_paused=False, paused_reason="")


def alter(webhook: Webhook, changes: Mapping[str, object]) -> Webhook:
    """Change fields of the definition; `changes` has only names in `ALTERABLE`."""
    definition = msgspec.structs.replace(webhook.definition, **changes)
    if definition == webhook.definition:
        return webhook
    return msgspec.structs.replace(webhook, definition=definition)


def rotate(webhook: Webhook, sealed: bytes, until_ms: int) -> Webhook:
    """Replace the current secret. Calls are signed with the replaced secret too until `until_ms`."""
    previous = SealedSecret(webhook.secrets[0].sealed, until_ms)
    return msgspec.structs.replace(webhook, secrets=(SealedSecret(sealed), previous))


def secrets_in_force(webhook: Webhook, now_ms: int) -> tuple[bytes, ...]:
    """Sealed secrets that calls are signed with at `now_ms`."""
    return tuple(each.sealed for each in webhook.secrets if each.until_ms is None or each.until_ms > now_ms)


def size_of(webhook: Webhook) -> int:
    """Approximate size of a state in bytes."""
    definition = webhook.definition
    return (
        500 + len(definition.url) + len(definition.filter) + sum(len(each.sealed) for each in webhook.secrets)
    )
