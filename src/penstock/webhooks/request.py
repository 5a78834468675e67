"""HTTP request that a webhook sends for a message: id, headers and body. Pure.

The body is the stored value of the message, or a CloudEvent (1.0, structured JSON) that contains the value.
"""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from penstock.records.iteration import Record

RAW: Final = "raw"
CLOUDEVENT: Final = "cloudevent"
FORMATS: Final = (RAW, CLOUDEVENT)
USER_AGENT: Final = "penstock-webhook"
_CONTENT_TYPE: Final = "content-type"
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{1,200}", re.ASCII)
_LAST_MS: Final = 253_402_300_799_999


class MessageSource(NamedTuple):
    """Partition that a message was received from."""

    topic: str
    topic_id: UUID
    partition: int


class WebhookRequest(NamedTuple):
    message_id: str
    headers: list[tuple[str, str]]
    """Headers without those of the signature, Host and Content-Length."""
    body: bytes


def message_id(source: MessageSource, offset: int) -> str:
    """Id of a message: unique in the cluster, and the same for every attempt."""
    return f"msg_{source.topic_id.hex}_{source.partition}_{offset}"


def make_request(source: MessageSource, record: Record, attempt: int, body_format: str) -> WebhookRequest:
    identity = message_id(source, record.offset)
    headers = [
        ("user-agent", USER_AGENT),
        ("penstock-topic", source.topic),
        ("penstock-partition", str(source.partition)),
        ("penstock-offset", str(record.offset)),
        ("penstock-attempt", str(attempt)),
    ]
    if body_format == CLOUDEVENT:
        body = msgspec.json.encode(_cloud_event(source, record, identity))
        return WebhookRequest(identity, [*headers, (_CONTENT_TYPE, "application/cloudevents+json")], body)
    content_type = _content_type(record) or "application/octet-stream"
    return WebhookRequest(identity, [*headers, (_CONTENT_TYPE, content_type)], record.value or b"")


def _cloud_event(source: MessageSource, record: Record, identity: str) -> dict[str, Any]:
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": identity,
        "source": f"/topics/{source.topic}",
        "type": "penstock.message",
        "penstockpartition": source.partition,
        "penstockoffset": str(record.offset),
    }
    if 0 <= record.timestamp <= _LAST_MS:
        time = datetime.fromtimestamp(record.timestamp / 1000, UTC)
        event["time"] = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    key = _text(record.key)
    if key:
        event["partitionkey"] = key
    return event | _data(record)


def _data(record: Record) -> dict[str, Any]:
    if record.value is None:
        return {}
    content_type = _content_type(record)
    if content_type is None or content_type.partition(";")[0].strip().endswith("json"):
        try:
            return {"datacontenttype": "application/json", "data": msgspec.json.decode(record.value)}
        except (msgspec.DecodeError, RecursionError):
            content_type = content_type or "application/octet-stream"
    text = _text(record.value)
    if text is not None and content_type.startswith("text/"):
        return {"datacontenttype": content_type, "data": text}
    return {"datacontenttype": content_type, "data_base64": b64encode(record.value).decode()}


def _content_type(record: Record) -> str | None:
    found = next((value for name, value in record.headers if name == _CONTENT_TYPE), None)
    text = _text(found)
    return text if text is not None and _HEADER_VALUE.fullmatch(text) else None


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None
