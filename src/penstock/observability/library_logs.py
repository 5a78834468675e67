"""Bridge from Python's `logging`, which libraries use (kazoo, asyncio, uvicorn), to our log."""

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
"""Messages of kazoo, and the event that each becomes."""


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
            self._log.warning_rarely(event, **fields)  # uvicorn warns of every bad request


def event_of(logger: str, text: str) -> str:
    """Message for a log line of a library."""
    if not logger.startswith("kazoo"):
        return "library message"
    return next(
        (event for pattern, event in _ZOOKEEPER_EVENTS if pattern.search(text)), "zookeeper client message"
    )


def take_over_library_logs(log: Logger) -> None:
    """Make `log` the only target of library logs in this process."""
    logging.basicConfig(handlers=[LibraryLogHandler(log)], level=logging.WARNING, force=True)
