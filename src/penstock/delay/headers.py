"""Headers of delayed messages, which only topics with `delivery.delay` interpret.

A record with the header `penstock-deliver-at` (epoch milliseconds, or ISO 8601 with an offset) or `penstock-delay-ms`
is delayed; a record with `penstock-cancel` (an offset) cancels a delayed record of the same partition. Consumers
receive none of these records. When a delayed record is due, the leader stores it again without its delay and with the
headers `penstock-origin-offset` and `penstock-origin-timestamp`: the offset and time at which it was first stored. Only
leaders write these two headers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from penstock.records.content import Headers
from penstock.records.expiry import EXPIRING

PREFIX: Final = "penstock-"
DELIVER_AT: Final = "penstock-deliver-at"
DELAY_MS: Final = "penstock-delay-ms"
CANCEL: Final = "penstock-cancel"
ORIGIN_OFFSET: Final = "penstock-origin-offset"
ORIGIN_TIMESTAMP: Final = "penstock-origin-timestamp"

HIDING: Final = frozenset({DELIVER_AT, DELAY_MS, CANCEL})
"""Headers whose records are hidden: consumers do not receive them."""
ORIGIN: Final = frozenset({ORIGIN_OFFSET, ORIGIN_TIMESTAMP})
_OURS: Final = HIDING | ORIGIN
NOT_COPIED: Final = _OURS | EXPIRING
"""Headers that are removed from a copy of a record in another topic or partition: their effect must not be repeated,
and topics with delayed messages refuse origin headers from clients.
"""
_MAX_DIGITS = 18
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
MAX_TIME_MS: Final = 253_402_300_799_999
"""End of the year 9999 in epoch milliseconds."""


class InvalidDelay(ValueError):
    """A header of a delayed message is not valid. The text of the error is the reason."""


class Delay(NamedTuple):
    """Delay of a record: relative to the time at which it is stored, or an absolute time."""

    value_ms: int
    is_relative: bool

    def due_ms(self, stored_ms: int) -> int:
        return stored_ms + self.value_ms if self.is_relative else self.value_ms


class DelayHeaders(NamedTuple):
    """Decoded delay headers of a record; `ORDINARY` if it has none."""

    delay: Delay | None = None
    cancels: int | None = None
    """Offset of the delayed record that this record cancels."""
    origin: int | None = None
    """Offset at which the message of this record was first stored; None if it is this record."""
    origin_timestamp: int | None = None

    @property
    def is_hidden(self) -> bool:
        return self.delay is not None or self.cancels is not None


ORDINARY: Final = DelayHeaders()


def read_delay_headers(headers: Headers) -> DelayHeaders:
    """Decode the delay headers of a record; InvalidDelay if a header is malformed or repeated, or two contradict."""
    found: dict[str, bytes | None] = {}
    for name, value in headers:
        if name in _OURS:
            if name in found:
                raise InvalidDelay(f"the header {name} is repeated")
            found[name] = value
    if not found:
        return ORDINARY
    if len(HIDING & found.keys()) > 1:
        raise InvalidDelay(f"give one of the headers {', '.join(sorted(HIDING & found.keys()))}")
    delay = None
    if DELIVER_AT in found:
        delay = Delay(parse_time(found[DELIVER_AT]), is_relative=False)
    elif DELAY_MS in found:
        delay = Delay(_number(DELAY_MS, found[DELAY_MS], "milliseconds"), is_relative=True)
    return DelayHeaders(
        delay,
        _number(CANCEL, found[CANCEL], "the offset of a delayed record") if CANCEL in found else None,
        _number(ORIGIN_OFFSET, found[ORIGIN_OFFSET], "an offset") if ORIGIN_OFFSET in found else None,
        _number(ORIGIN_TIMESTAMP, found[ORIGIN_TIMESTAMP], "a time") if ORIGIN_TIMESTAMP in found else None,
    )


def parse_time(value: bytes | None) -> int:
    """Parse the value of `penstock-deliver-at` to epoch milliseconds; InvalidDelay if it is not a time."""
    text = _text(value)
    if text.isdecimal() and len(text) <= _MAX_DIGITS:
        time_ms = int(text)
    else:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidDelay(
                f"{DELIVER_AT}={text[:40]!r}: give epoch milliseconds or a time such as 2026-01-31T09:00:00+01:00"
            ) from None
        if time.tzinfo is None:
            raise InvalidDelay(
                f"{DELIVER_AT}={text[:40]!r}: give the time with its offset, such as +01:00 or Z"
            )
        time_ms = -((_EPOCH - time) // _MILLISECOND)  # rounded up, so that no message is early
    if time_ms > MAX_TIME_MS:
        raise InvalidDelay(f"{DELIVER_AT}={text[:40]!r}: the time is after the year 9999")
    return time_ms


def _number(name: str, value: bytes | None, expected: str) -> int:
    text = _text(value)
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise InvalidDelay(f"{name}={text[:40]!r}: give {expected} as a whole number")
    return int(text)


def _text(value: bytes | None) -> str:
    try:
        return "" if value is None else value.decode("ascii")
    except UnicodeDecodeError:
        return repr(value)


def without_delay(headers: Headers) -> Headers:
    """The headers of a record without the headers of delayed messages."""
    return tuple(header for header in headers if header[0] not in _OURS)


def is_hidden(headers: Headers) -> bool:
    """True if consumers of a topic with `delivery.delay` do not receive a record with these headers."""
    return any(name in HIDING for name, _ in headers)
