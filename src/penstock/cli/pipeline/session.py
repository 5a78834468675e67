"""Spark session for the command line: started on first use, without output, with errors in one line.

Java writes warnings and stack traces to a temporary file, which is read only if Spark does not start.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.cli.failures import Failure
from penstock.cli.pipeline.options import parse_conf
from penstock.errors import BrokerError, PenstockError
from penstock.extras import how_to_install
from penstock.pipeline.causes import cause_of as cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*,4]"
"""Spark master with all cores. A task has four attempts, as on a cluster."""
_SETTINGS = {"spark.sql.execution.arrow.maxBytesPerBatch": "16m"}
"""Settings of the session: the limit of an Arrow batch in bytes, so that batches of large rows fit in the memory of
tasks.
"""
_AGAIN = "Remove the cause, then run the command again."


class PipelineSession:
    """Spark session, which the first call of `open` starts; later calls return the same session."""

    def __init__(self, name: str, master: str | None, conf: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._conf = {**_SETTINGS, **(conf or {})}
        self._master = master or LOCAL
        self._session: SparkSession | None = None

    @property
    def current(self) -> SparkSession | None:
        return self._session

    def open(self) -> SparkSession:
        if self._session is None:
            with tempfile.TemporaryFile("w+", errors="replace") as output:
                try:
                    with _stderr_to(output.fileno()):
                        from penstock.pipeline.session import open_session

                        # This logger prints each invalid SQL statement with Java's stack trace.
                        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
                        self._session = open_session(self._name, self._master, self._conf)
                except Exception as error:
                    raise Failure(
                        f"Spark did not start: {_last_error(output.fileno()) or cause_of(error)}",
                        "Check Java (`java -version`), memory, and the --master address.",
                    ) from error
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None


@contextmanager
def pipeline_session(
    name: str, master: str | None, conf: list[str] | None = None
) -> Iterator[PipelineSession]:
    """Provide a session with the settings of `--conf`. Errors of Spark, its tasks and the pipeline become Failures."""
    session = PipelineSession(name, master, parse_conf(conf))
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
    """Return the Failure for an error; None if the error is a bug of the pipeline."""
    from pyspark.errors import PySparkException

    if isinstance(error, BrokerError):
        return Failure(
            f"the cluster refused a request: {error} ({error.code.name.upper()})",
            "Look at the brokers with `penstock cluster status`, then run the command again.",
        )
    if isinstance(error, PenstockError):
        return Failure(str(error), _AGAIN)
    if isinstance(error, OSError | PySparkException) or type(error).__module__.startswith("py4j"):
        return Failure(cause_of(error), _AGAIN)
    return None


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


def _last_error(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, min(size, 65_536), max(0, size - 65_536)).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if not line.startswith("\tat ")]
    errors = [line for line in lines if "Exception" in line or "rror" in line]
    return errors[-1] if errors else ""
