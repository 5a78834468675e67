"""Delays of messages in request bodies, and the check that their topic supports delayed messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.config import DELIVERY_DELAY
from penstock.config.resources import ConfigResourceType
from penstock.delay.headers import DELAY_MS, DELIVER_AT, HIDING, InvalidDelay, parse_time
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.backend import Backend
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.schema import Schema
from penstock.gateway.http.shared_schemas import LONG_MAX
from penstock.gateway.mailbox_layouts import TOPIC as MAILBOX
from penstock.internal_client.configs import ConfigEntry
from penstock.records.content import Headers

DELAY_FIELDS: Final[Mapping[str, Schema]] = {
    "delay_ms": {
        "type": "integer",
        "minimum": 0,
        "maximum": LONG_MAX,
        "description": "Deliver the message this many milliseconds later; the topic needs delivery.delay.",
    },
    "deliver_at": {
        "type": "string",
        "minLength": 1,
        "maxLength": 40,
        "description": "Deliver the message at this time: ISO 8601 with an offset, or epoch milliseconds.",
    },
}


def delay_headers(body: Mapping[str, Any], pointer: str) -> Headers:
    """Return the record headers for the delay in a body; raises Problem if the delay is invalid."""
    delay_ms, deliver_at = body.get("delay_ms"), body.get("deliver_at")
    if delay_ms is None and deliver_at is None:
        return ()
    if delay_ms is not None and deliver_at is not None:
        raise Problem(400, "give delay_ms or deliver_at, not both", error="INVALID_REQUEST", pointer=pointer)
    if deliver_at is None:
        return ((DELAY_MS, str(delay_ms).encode()),)
    try:
        return ((DELIVER_AT, str(parse_time(deliver_at.encode())).encode()),)
    except InvalidDelay as error:
        raise Problem(
            400, str(error).replace(DELIVER_AT, "deliver_at"), error="INVALID_REQUEST", pointer=pointer
        ) from None


def has_delay(headers: Iterable[Headers]) -> bool:
    return any(name in HIDING for each in headers for name, _ in each)


async def require_delays(backend: Backend, topic: str) -> None:
    """Raise Problem if the topic does not support delayed messages: it would deliver them at once."""
    entries = await _entries(backend, topic)
    if not any(entry.name == DELIVERY_DELAY.name and entry.value == "true" for entry in entries):
        raise Problem(
            400,
            f"{topic} has no delayed messages; a topic has them from its creation on: "
            f"`penstock topic create {topic} --set {DELIVERY_DELAY.name}=true`",
            error="INVALID_REQUEST",
        )


async def _entries(backend: Backend, topic: str) -> Sequence[ConfigEntry]:
    """Return the configs of a topic; none for the mailbox topic if it does not exist yet."""
    try:
        return await backend.configs.get(ConfigResourceType.TOPIC, topic)
    except BrokerError as error:
        if error.code is ErrorCode.unknown_topic_or_partition and topic == MAILBOX:
            return ()
        raise
