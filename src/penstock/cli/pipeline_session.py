"""A Spark session for the command line: started when there is work, silent, and what goes wrong in it in one line.

Java writes its warnings and stack traces to where standard error went when it was started: a file that is looked at
only where Spark does not start at all.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.cli.failures import Failure
from penstock.errors import BrokerError, PenstockError
from penstock.extras import how_to_install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*,4]"
"""All cores; a task is tried four times, as on a cluster."""
_SETTINGS = {"spark.sql.execution.arrow.maxBytesPerBatch": "16m"}
"""Rows of any size go to tasks in batches that fit."""
_PYTHON_ERROR = re.compile(r"^(?:[\w.]*\.)?(\w+)(?:: (.*))?$")
_JAVA_ERROR = re.compile(r"^: (?:[\w.$]*[.$])?(\w+)(?:: (.*))?$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] |\s*SQLSTATE: \w+.*")


class PipelineSession:
    """Opened at the first `open`; the same from then on."""

    def __init__(self, name: str, master: str | None) -> None:
        self._name = name
        self._master = master or LOCAL
        self._session: SparkSession | None = None

    @property
    def current(self) -> SparkSession | None:
        return self._session

    def open(self) -> SparkSession:
        if self._session is None:
            with tempfile.TemporaryFile("w+", errors="replace") as said:
                try:
                    with _stderr_to(said.fileno()):
                        from penstock.pipeline.session import open_session

                        # It tells of every wrong statement with all of Java's stack.
                        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
                        self._session = open_session(self._name, self._master, _SETTINGS)
                except Exception as error:
                    raise Failure(
                        f"Spark does not start: {_last_words(said.fileno()) or cause_of(error)}"
                    ) from error
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None


@contextmanager
def pipeline_session(name: str, master: str | None) -> Iterator[PipelineSession]:
    """Errors of Spark, of its tasks and of the pipeline become Failures."""
    session = PipelineSession(name, master)
    try:
        import deltalake  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as missing:
        raise Failure(
            f"the pipeline needs {missing.name}, which is not installed",
            f"Install it: {how_to_install('pipeline')}",
        ) from None
    try:
        yield session
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure from error
    finally:
        with suppress(Exception):
            session.close()


def failure_of(error: Exception) -> Failure | None:
    """None for what is a bug of ours."""
    from pyspark.errors import PySparkException

    if isinstance(error, BrokerError):
        return Failure(f"the cluster says: {error}")
    if isinstance(error, PenstockError):
        return Failure(str(error))
    if isinstance(error, OSError | PySparkException) or type(error).__module__.startswith("py4j"):
        return Failure(cause_of(error))
    return None


def cause_of(error: BaseException) -> str:
    """What was wrong, without where in which program: of a task's traceback the last line."""
    text = str(error)
    for line in reversed(_traceback_lines(text)):
        if found := _PYTHON_ERROR.match(line):
            return found[2] or found[1]
    if text.startswith("An error occurred while calling") and (found := _JAVA_ERROR.search(text)):
        return _CONDITION.sub("", found[2] or found[1]).strip()
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _CONDITION.sub("", first).strip()


def _traceback_lines(text: str) -> list[str]:
    """The unindented lines after the last Python traceback, up to Java's or to what is known of a stream."""
    _, found, rest = text.rpartition("Traceback (most recent call last):")
    if not found:
        return []
    lines: list[str] = []
    for line in rest.splitlines()[1:]:
        if line.startswith(("\tat ", "===")) or (lines and not line.strip()):
            break
        if line and not line[0].isspace():
            lines.append(line)
    return lines


@contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _last_words(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, min(size, 65_536), max(0, size - 65_536)).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if not line.startswith("\tat ")]
    telling = [line for line in lines if "Exception" in line or "rror" in line]
    return telling[-1] if telling else ""
