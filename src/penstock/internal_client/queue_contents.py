"""Contents of queue messages: values of any JSON type, text or bytes, and options as record headers.

Text and JSON values have a `content-type` header, so that the receiver gets a value as it was sent, in Python
and over HTTP. A value without the header is bytes. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from penstock.records.content import Headers

CONTENT_TYPE: Final = "content-type"
JSON_TYPE: Final = b"application/json"
TEXT_TYPE: Final = b"text/plain; charset=utf-8"
DELAY_HEADER: Final = "penstock-delay-ms"
TTL_HEADER: Final = "penstock-ttl-ms"
EXPIRES_HEADER: Final = "penstock-expires-at"
PRIORITY_HEADER: Final = "penstock-priority"
ROUTE_HEADER: Final = "penstock-route"


def encode_content(value: Any) -> tuple[bytes | None, Headers]:
    """Return the bytes of a value and its headers. Raises TypeError or ValueError if the value has no JSON form."""
    if value is None or isinstance(value, bytes | bytearray | memoryview):
        return None if value is None else bytes(value), ()
    if isinstance(value, str):
        return value.encode(), ((CONTENT_TYPE, TEXT_TYPE),)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(), ((CONTENT_TYPE, JSON_TYPE),)


def decode_content(value: bytes | None, headers: Headers) -> Any:
    """Return the value as it was sent. Returns bytes if the content type is unknown or does not fit the bytes."""
    content_type = next((found for name, found in headers if name == CONTENT_TYPE), None)
    if value is None or content_type is None:
        return value
    try:
        if content_type.split(b";")[0] == JSON_TYPE:
            return json.loads(value)
        return value.decode() if content_type.startswith(b"text/") else value
    except ValueError:
        return value


def expires_at_ms(headers: Headers, timestamp_ms: int) -> int | None:
    """Time in epoch milliseconds at which a message expires; None if it does not expire or its header is
    malformed.

    The header `penstock-expires-at` has epoch milliseconds or ISO 8601 with an offset; `penstock-ttl-ms`
    counts from the record's timestamp.
    """
    for name, value in headers:
        text = (value or b"").decode("ascii", errors="replace").strip()
        if name == TTL_HEADER and text.isascii() and text.isdigit():
            return timestamp_ms + int(text)
        if name == EXPIRES_HEADER:
            return _parse_time_ms(text)
    return None


def _parse_time_ms(text: str) -> int | None:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if parsed.tzinfo is None else int(parsed.timestamp() * 1000)


def option_headers(options: Mapping[str, Any]) -> Headers:
    """Headers for the options `delay_ms`, `ttl_ms`, `priority` and `route`, if given."""
    names = {
        "delay_ms": DELAY_HEADER,
        "ttl_ms": TTL_HEADER,
        "priority": PRIORITY_HEADER,
        "route": ROUTE_HEADER,
    }
    return tuple(
        (name, str(options[option]).encode())
        for option, name in names.items()
        if options.get(option) is not None
    )
