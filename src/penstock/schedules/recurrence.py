"""The times of a schedule: a cron expression in a time zone, or `@every` an interval.

An expression has five fields, or six with seconds first. When daylight saving time begins or ends, five fields behave
as in Debian's cron: `30 2 * * *` fires once when the hour is repeated, and at 03:00 when 02:30 does not exist.
Times are milliseconds since the epoch. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from penstock.errors import BrokerError, ErrorCode

MIN_INTERVAL_MS: Final = 1_000
MAX_INTERVAL_MS: Final = 366 * 86_400_000
MAX_EXPRESSION_CHARACTERS: Final = 200
ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY: Final = re.compile(r"@every\s+((?:\d{1,9}[smhd])+)", re.ASCII | re.IGNORECASE)
_PART: Final = re.compile(r"(\d+)([smhd])", re.ASCII | re.IGNORECASE)
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_STEPS: Final = 10_000
_LAST_MS: Final = 253_000_000_000_000
"""Latest supported time: the year would be near 9999."""


class Recurrence(Protocol):
    def after(self, time_ms: int) -> int | None:
        """First time of the recurrence after `time_ms`; None if there is none."""

    def at_or_before(self, time_ms: int) -> int | None:
        """Last time of the recurrence at or before `time_ms`; None if there is none."""


def next_times(recurrence: Recurrence, time_ms: int, count: int) -> list[int]:
    """The next `count` times after `time_ms`; fewer if the recurrence ends."""

    def walk() -> Iterator[int]:
        found = recurrence.after(time_ms)
        while found is not None:
            yield found
            found = recurrence.after(found)

    return list(islice(walk(), count))


def parse_recurrence(expression: str, timezone: str, anchor_ms: int) -> Recurrence:
    """Parse a cron expression or interval. Raises BrokerError with the reason if it is invalid or never fires.

    `anchor_ms` is the start of the intervals of `@every`.
    """
    text = expression.strip()
    zone = parse_timezone(timezone)
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        raise _wrong(
            f"the expression has {len(text)} characters, at most {MAX_EXPRESSION_CHARACTERS} are allowed"
        )
    if text.lower().startswith("@every"):
        return Interval(_interval_ms(text), anchor_ms)
    if text.startswith("@"):
        if text.lower() not in ALIASES:
            raise _wrong(f"unknown expression {text!r}; use one of {', '.join(ALIASES)}, or @every 90s")
        text = ALIASES[text.lower()]
    cron = CronTimes(text, zone)
    if cron.after(anchor_ms) is None:
        raise _wrong(f"{expression!r} never fires: no date matches all of its fields")
    return cron


def parse_timezone(name: str) -> tzinfo:
    """Return the time zone with a name of the IANA database. Raises BrokerError for other names."""
    if name == "UTC":
        return UTC  # available without a time zone database
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise _wrong(f"unknown time zone {name[:80]!r}; use a name such as Europe/Berlin or UTC") from None


class Interval:
    """Times at a fixed interval after an anchor."""

    def __init__(self, interval_ms: int, anchor_ms: int) -> None:
        self._interval_ms = interval_ms
        self._anchor_ms = anchor_ms

    def after(self, time_ms: int) -> int | None:
        passed = max(0, (time_ms - self._anchor_ms) // self._interval_ms)
        return self._anchor_ms + (passed + 1) * self._interval_ms

    def at_or_before(self, time_ms: int) -> int | None:
        passed = (time_ms - self._anchor_ms) // self._interval_ms
        return self._anchor_ms + passed * self._interval_ms if passed > 0 else None


class CronTimes:
    """The times of a cron expression in a time zone."""

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression = expression
        self._zone = zone
        fields = len(expression.split())
        if fields not in (5, 6):
            raise _wrong(
                f"{expression!r} has {fields} fields; give five (minute hour day month weekday), "
                "or six with seconds first"
            )
        from cronsim import CronSim, CronSimError  # imported here because few brokers need it

        self._walk, self._error = CronSim, CronSimError
        try:
            CronSim(expression, _EPOCH)
        except (CronSimError, AssertionError) as error:
            raise _wrong(
                f"{expression!r} is not a cron expression that can fire: {error or 'wrong field'}"
            ) from None

    def after(self, time_ms: int) -> int | None:
        return self._next(time_ms, reverse=False)

    def at_or_before(self, time_ms: int) -> int | None:
        # The iteration of cronsim excludes its start and has whole seconds.
        return self._next(time_ms // 1000 * 1000 + 1000, reverse=True)

    def _next(self, time_ms: int, *, reverse: bool) -> int | None:
        if not 0 <= time_ms <= _LAST_MS:
            return None
        start = (_EPOCH + timedelta(seconds=time_ms // 1000)).astimezone(self._zone)
        try:
            # In an hour that the clock repeats, cronsim may begin with a time of the first pass.
            for found in islice(self._walk(self._expression, start, reverse=reverse), _MAX_STEPS):
                found_ms = int((found - _EPOCH).total_seconds()) * 1000
                if (found_ms < time_ms) if reverse else (found_ms > time_ms):
                    return found_ms
        except (self._error, OverflowError, ValueError):
            pass
        return None


def _interval_ms(text: str) -> int:
    found = _EVERY.fullmatch(text)
    if found is None:
        raise _wrong(
            f"{text!r} is not an interval; use for example @every 90s, @every 15m, @every 1h30m or @every 1d"
        )
    total_ms = sum(int(number) * _UNITS_MS[unit.lower()] for number, unit in _PART.findall(found[1]))
    if not MIN_INTERVAL_MS <= total_ms <= MAX_INTERVAL_MS:
        raise _wrong(f"the interval of {text!r} is not between one second and 366 days")
    return total_ms


def _wrong(message: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, message)
