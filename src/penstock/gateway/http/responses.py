"""JSON responses, and the form of times in them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from starlette.responses import Response

from penstock.gateway.http.endpoint import JSON

_ENCODER = msgspec.json.Encoder()
_MAX_TIME_MS = 253_402_300_799_999
"""Last millisecond of the year 9999 since the Unix epoch: later years have no four-digit form in ISO 8601."""


class JsonResponse(Response):
    """A complete JSON response, created and sent with less work than starlette's."""

    def __init__(self, body: bytes, status: int, content_type: str) -> None:
        self.body = body
        self.status_code = status
        self.background = None
        self.raw_headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(body)).encode()),
        ]


def json_response(value: Any, status: int = 200, content_type: str = JSON) -> JsonResponse:
    return JsonResponse(_ENCODER.encode(value), status, content_type)


def iso_time(time_ms: int) -> str:
    """Format a time in UTC with milliseconds. A time out of range becomes the nearest one in range."""
    shown = min(max(time_ms, 0), _MAX_TIME_MS)
    seconds, milliseconds = divmod(shown, 1000)
    return f"{_iso_seconds(seconds)}.{milliseconds:03d}Z"


@lru_cache(maxsize=256)
def _iso_seconds(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
