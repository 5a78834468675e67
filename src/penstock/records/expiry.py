"""Expiry of messages: headers with the time until which a message is of use.

`penstock-ttl-ms` is a number of milliseconds after the timestamp of the record, `penstock-expires-at` a time in epoch
milliseconds or in ISO 8601 with an offset from UTC. A message with both headers expires at the earlier time. Invalid
values are ignored, because records of any topic may have headers with these names. A plain Fetch returns expired
records; share groups, views, HTTP, Penstock's `Consumer` and `penstock consume` leave them out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.records.content import Headers

TTL_MS: Final = "penstock-ttl-ms"
EXPIRES_AT: Final = "penstock-expires-at"
EXPIRING: Final = frozenset({TTL_MS, EXPIRES_AT})
EXPIRING_BYTES: Final = tuple(name.encode() for name in sorted(EXPIRING))
"""The encoded names of the headers. A record that contains none of them does not expire."""
_MAX_DIGITS = 18
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def read_number(value: bytes | None) -> int | None:
    """Parse a whole number in decimal digits; None for any other value."""
    return int(value) if value is not None and value.isdigit() and len(value) <= _MAX_DIGITS else None


def read_time(value: bytes | None) -> int | None:
    """Parse a time as epoch milliseconds, rounded up; None if the value is not a time with an offset from UTC."""
    number = read_number(value)
    if number is not None or value is None:
        return number
    try:
        time = datetime.fromisoformat(value.decode("ascii"))
    except ValueError:
        return None
    return None if time.tzinfo is None else -((_EPOCH - time) // _MILLISECOND)


def is_expired(timestamp_ms: int, headers: Headers, now_ms: int) -> bool:
    """True if a record has expired at `now_ms`."""
    time_ms = expires_at(timestamp_ms, headers)
    return time_ms is not None and time_ms <= now_ms


def expires_at(timestamp_ms: int, headers: Headers) -> int | None:
    """Time at which a record expires, in epoch milliseconds; None if it does not."""
    earliest: int | None = None
    for name, value in headers:
        time_ms = None
        if name == TTL_MS:
            ttl_ms = read_number(value)
            if ttl_ms is not None and timestamp_ms >= 0:
                time_ms = timestamp_ms + ttl_ms
        elif name == EXPIRES_AT:
            time_ms = read_time(value)
        if time_ms is not None and (earliest is None or time_ms < earliest):
            earliest = time_ms
    return earliest


def has_lifetime(content: bytes) -> bool:
    """True if encoded records may expire, because their bytes contain the name of an expiry header."""
    return any(name in content for name in EXPIRING_BYTES)


def may_expire(headers: Headers) -> bool:
    return any(name in EXPIRING for name, _ in headers)
