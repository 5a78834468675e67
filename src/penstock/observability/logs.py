"""Structured log: each line is a constant message and named values, as JSON or as text for reading.

Messages are constants. All data from outside goes into values, which are escaped and truncated. The `_rarely`
methods are for events that a client can cause as often as it likes.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TextIO

from penstock.clock import Clock
from penstock.config import LOGGING_FORMAT, LOGGING_LEVEL, BrokerConfig, LoggingFormat, LoggingLevel
from penstock.errors import PenstockError
from penstock.observability.log_lines import (
    MAX_TRACEBACK_CHARACTERS,
    TRACEBACK,
    coloured_line,
    json_line,
    plain_line,
    text_line,
)

LINES_PER_WINDOW = 5
WINDOW_SECONDS = 10.0
RECENT_LINES = 500
"""Number of recent lines that are kept in memory for operators."""

Formatter = Callable[[datetime, LoggingLevel, str, Mapping[str, object]], str]

_SEVERITY = {level: severity for severity, level in enumerate(LoggingLevel)}


class Logger:
    """Logger that writes lines whose level is `level` or higher."""

    def __init__(
        self,
        clock: Clock,
        write: Callable[[str], object],
        form: Formatter,
        level: LoggingLevel = LoggingLevel.INFO,
        common: Mapping[str, object] | None = None,
    ) -> None:
        """Create a logger; every line has the fields `common`."""
        self._clock = clock
        self._write = write
        self._form = form
        self._severity = _SEVERITY[level]
        self._common = dict(common or {})
        self._limiter = _Limiter(clock)
        self.recent: deque[Mapping[str, object]] = deque(maxlen=RECENT_LINES)
        """Most recent lines, oldest first, as mappings in the form of the JSON format."""

    def debug(self, message: str, **fields: object) -> None:
        self._line(LoggingLevel.DEBUG, message, fields)

    def info(self, message: str, **fields: object) -> None:
        self._line(LoggingLevel.INFO, message, fields)

    def warning(self, message: str, **fields: object) -> None:
        self._line(LoggingLevel.WARNING, message, fields)

    def error(self, message: str, problem: BaseException | None = None, **fields: object) -> None:
        """Log an error. The text of `problem` is added, with its traceback unless it is a PenstockError or OSError."""
        self._line(LoggingLevel.ERROR, message, fields | _describe(problem))

    def warning_rarely(self, message: str, **fields: object) -> None:
        """Log a warning, but at most `LINES_PER_WINDOW` times in `WINDOW_SECONDS` for each message. The next line
        after the window shows the number of suppressed lines.
        """
        if (suppressed := self._limiter.admit(message)) is not None:
            self._line(LoggingLevel.WARNING, message, fields | suppressed)

    def error_rarely(self, message: str, problem: BaseException, **fields: object) -> None:
        """Log an error as `error` does, with the rate limit of `warning_rarely`. A PenstockError or OSError is
        logged as a warning.
        """
        if (suppressed := self._limiter.admit(message)) is not None:
            level = LoggingLevel.WARNING if _is_ordinary(problem) else LoggingLevel.ERROR
            self._line(level, message, fields | _describe(problem) | suppressed)

    def _line(self, level: LoggingLevel, message: str, fields: Mapping[str, object]) -> None:
        if _SEVERITY[level] >= self._severity:
            now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
            values = {**self._common, **fields}
            self._write(self._form(now, level, message, values) + "\n")
            self.recent.append(plain_line(now, level, message, values))


class _Limiter:
    """Rate limit for log lines with the same message. Messages are constants, so the table stays small."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}

    def admit(self, message: str) -> dict[str, object] | None:
        """Return fields to add to the line, or None if the line is to be suppressed."""
        now = self._clock.monotonic()
        started, count = self._windows.get(message, (now, 0))
        added: dict[str, object] = {}
        if now - started >= WINDOW_SECONDS:
            if count > LINES_PER_WINDOW:
                added["suppressed"] = count - LINES_PER_WINDOW
            started, count = now, 0
        self._windows[message] = (started, count + 1)
        return added if count < LINES_PER_WINDOW else None


def _is_ordinary(problem: BaseException) -> bool:
    return isinstance(problem, PenstockError | OSError)


def _describe(problem: BaseException | None) -> dict[str, object]:
    if problem is None:
        return {}
    described: dict[str, object] = {"error": f"{type(problem).__name__}: {problem}"}
    if not _is_ordinary(problem):
        described[TRACEBACK] = "".join(traceback.format_exception(problem))[-MAX_TRACEBACK_CHARACTERS:]
    return described


def open_logger(
    config: BrokerConfig, clock: Clock, stream: TextIO, *, no_color: bool = False, **common: object
) -> Logger:
    """Create the logger of a process, with the configured format and level. `no_color` disables colors (NO_COLOR),
    and `common` has the fields of every line.
    """
    on_terminal = stream.isatty()
    form = config[LOGGING_FORMAT]
    if form is LoggingFormat.JSON or (form is LoggingFormat.AUTO and not on_terminal):
        return Logger(clock, stream.write, json_line, config[LOGGING_LEVEL], common)
    line = coloured_line if on_terminal and not no_color else text_line
    return Logger(clock, stream.write, line, config[LOGGING_LEVEL], common)
