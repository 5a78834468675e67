"""Formats of a log line: a JSON object, or text for reading.

All values are escaped and truncated here, so that no client can forge a line or color a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Set
from datetime import datetime
from itertools import islice

from penstock.config import LoggingLevel

MAX_VALUE_CHARACTERS = 200
MAX_TRACEBACK_CHARACTERS = 8_000
MAX_ITEMS = 20
"""Maximum number of entries of a collection that are shown in a log line."""
TRACEBACK = "traceback"

_COLOURS = {
    LoggingLevel.DEBUG: "\x1b[2m",
    LoggingLevel.INFO: "\x1b[32m",
    LoggingLevel.WARNING: "\x1b[33m",
    LoggingLevel.ERROR: "\x1b[31m",
}
_RESET = "\x1b[0m"


def json_line(time: datetime, level: LoggingLevel, message: str, fields: Mapping[str, object]) -> str:
    return json.dumps(plain_line(time, level, message, fields))


def plain_line(
    time: datetime, level: LoggingLevel, message: str, fields: Mapping[str, object]
) -> dict[str, object]:
    """Log line as a mapping of values that JSON can represent."""
    values = {name: _plain(value, name) for name, value in fields.items()}
    return {"time": _timestamp(time), "level": str(level), "message": message, **values}


def text_line(time: datetime, level: LoggingLevel, message: str, fields: Mapping[str, object]) -> str:
    """Text format: `time LEVEL message name=value ...`, with a traceback on separate lines."""
    values = {name: _plain(value, name) for name, value in fields.items()}
    trace = values.pop(TRACEBACK, None)
    words = [f"{name}={_quoted(value)}" for name, value in values.items()]
    line = " ".join(
        [f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03}", f"{level.upper():7}", message, *words]
    )
    if trace is None:
        return line
    return "\n".join([line, *(f"    {_escaped(row)}" for row in str(trace).splitlines())])


def coloured_line(time: datetime, level: LoggingLevel, message: str, fields: Mapping[str, object]) -> str:
    """Text format with colors for a terminal."""
    return _COLOURS[level] + text_line(time, level, message, fields) + _RESET


def _timestamp(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object, name: str) -> object:
    """Convert the value of the field `name` to a truncated value that JSON can represent, never to Python's repr."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each, name) for key, each in islice(value.items(), MAX_ITEMS)}
    if (
        isinstance(value, Collection)
        and not isinstance(value, str | bytes)
        and type(value).__str__ is object.__str__
    ):
        items = sorted(value, key=str) if isinstance(value, Set) else value
        return [_plain(each, name) for each in islice(items, MAX_ITEMS)]
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    limit = MAX_TRACEBACK_CHARACTERS if name == TRACEBACK else MAX_VALUE_CHARACTERS
    return text if len(text) <= limit else text[:limit] + "..."


def _quoted(value: object) -> str:
    text = json.dumps(value) if isinstance(value, dict | list) else str(value)
    plain = text.isprintable() and text.isascii() and text and not any(c in text for c in " \"'=")
    return text if plain else json.dumps(text)


def _escaped(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]
