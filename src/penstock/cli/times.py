"""Times on the command line: parsing of user input, and formatting for tables."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from penstock.cli.failures import ExitCode, Failure

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"(\d+)([smhdw])")
_LEAST_EPOCH_MS_DIGITS = 11


def parse_time_ms(text: str, now_ms: int) -> int:
    """Parse `2026-03-01`, `2026-03-01T12:00:00Z`, milliseconds since 1970 (11 or more digits), or an age such as
    `90m`.
    """
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _UNITS_MS[ago[2]]
    if text.isascii() and text.isdigit() and len(text) >= _LEAST_EPOCH_MS_DIGITS:
        return int(text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise Failure(
            f"{text!r} is not a time",
            "Write 2026-03-01T12:00:00Z, milliseconds since 1970, or how long ago: 30s, 15m, 2h, 7d.",
            code=ExitCode.USAGE,
        ) from None
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """Parse a duration such as `30s`, `15m`, `2h`, `7d` or `4w`."""
    found = _AGO.fullmatch(text)
    if not found:
        raise Failure(f"{text!r} is not a duration", "Write 30s, 15m, 2h, 7d or 4w.", code=ExitCode.USAGE)
    return int(found[1]) * _UNITS_MS[found[2]]


def show_time(timestamp_ms: int) -> str:
    """Format a time as ISO 8601 in UTC; a dash if there is none."""
    if timestamp_ms < 0:
        return "-"
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
