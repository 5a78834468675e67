"""Bridge from Python's `logging`, which libraries (kazoo, asyncio, uvicorn) use, to the structured log."""

from __future__ import annotations

import logging
import re

from penstock.observability.logs import Logger

_ZOOKEEPER_EVENTS = (
    (
        re.compile(r"Connection dropped|Connection closed|socket.*closed|Broken pipe", re.I),
        "zookeeper connection lost",
    ),
    (re.compile(r"connection time-?out|timed out", re.I), "zookeeper connection timed out"),
    (re.compile(r"Session has expired|expired", re.I), "zookeeper session expired"),
    (re.compile(r"Failed connecting|Cannot resolve|Connection refused", re.I), "zookeeper unreachable"),
)
"""Patterns of kazoo's messages, each with the message that is logged instead. The first match decides."""


class LibraryLogHandler(logging.Handler):
    def __init__(self, log: Logger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        text = record.getMessage()
        event = event_of(record.name, text)
        fields = {"logger": record.name, "text": text}
        if record.levelno >= logging.ERROR:
            self._log.error(event, problem, **fields)
        else:
            self._log.warning_rarely(event, **fields)  # uvicorn logs every bad request


def event_of(logger: str, text: str) -> str:
    """Constant message for the log line, from the library's logger name and its text."""
    if not logger.startswith("kazoo"):
        return "message of a library"
    return next(
        (event for pattern, event in _ZOOKEEPER_EVENTS if pattern.search(text)),
        "message of the zookeeper client",
    )


def take_over_library_logs(log: Logger) -> None:
    """Send all warnings and errors that libraries log in this process to `log`, and nowhere else."""
    logging.basicConfig(handlers=[LibraryLogHandler(log)], level=logging.WARNING, force=True)
