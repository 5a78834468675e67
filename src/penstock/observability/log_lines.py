"""The two forms of a log line: a JSON object, and words for people.

Values are escaped and cut here, whatever they are: nothing a client sent can forge a line or colour a
terminal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from penstock.config import LoggingLevel

MAX_VALUE_CHARACTERS = 200
MAX_TRACEBACK_CHARACTERS = 8_000
TRACEBACK = "traceback"

_COLOURS = {
    LoggingLevel.DEBUG: "\x1b[2m",
    LoggingLevel.INFO: "\x1b[32m",
    LoggingLevel.WARNING: "\x1b[33m",
    LoggingLevel.ERROR: "\x1b[31m",
}
_RESET = "\x1b[0m"


def json_line(time: datetime, level: LoggingLevel, message: str, fields: Mapping[str, object]) -> str:
    values = {name: _plain(value, name) for name, value in fields.items()}
    return json.dumps({"time": _timestamp(time), "level": str(level), "message": message, **values})


def text_line(time: datetime, level: LoggingLevel, message: str, fields: Mapping[str, object]) -> str:
    """`time LEVEL message name=value ...`, and a traceback on lines of its own."""
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
    """The same for a terminal."""
    return _COLOURS[level] + text_line(time, level, message, fields) + _RESET


def _timestamp(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object, name: str) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    limit = MAX_TRACEBACK_CHARACTERS if name == TRACEBACK else MAX_VALUE_CHARACTERS
    return text if len(text) <= limit else text[:limit] + "..."


def _quoted(value: object) -> str:
    text = str(value)
    plain = text.isprintable() and text.isascii() and text and not any(c in text for c in " \"'=")
    return text if plain else json.dumps(text)


def _escaped(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]
