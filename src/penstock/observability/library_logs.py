"""What libraries say through Python's own `logging` (asyncio, uvicorn) goes into our log, in our form."""

from __future__ import annotations

import logging

from penstock.observability.logs import Log


class LibraryLogHandler(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        fields = {"logger": record.name, "text": record.getMessage()}
        if record.levelno >= logging.ERROR:
            self._log.error("library", problem, **fields)
        else:
            self._log.warning_rarely("library", **fields)  # a stranger's bad request is worth one to uvicorn


def take_over_library_logs(log: Log) -> None:
    """Make `log` the one place of this process that library logs go to."""
    logging.basicConfig(handlers=[LibraryLogHandler(log)], level=logging.WARNING, force=True)
