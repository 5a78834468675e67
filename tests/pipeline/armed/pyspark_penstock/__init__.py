"""Source and sinks for a Spark whose processes are killed. Replaces the package of this name when its folder
comes first in the path.

PENSTOCK_DEATHS names a folder with one file for each death, used in order: the process (`task` or `driver`),
the number of the request to a broker (`at`), counted over all requests or over one API (`api`), and whether
it is sent first.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from process_sessions import kill_session
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.net.broker_connection import BrokerConnection
from penstock.pipeline.sink.stream_writer import SinkStreamWriter
from penstock.pipeline.source import PenstockSource

_API_KEY = slice(4, 6)


class DefaultSource(PenstockSource):
    def streamWriter(self, schema: StructType, overwrite: bool) -> SinkStreamWriter:
        return ArmedWriter.checked(self.options, schema)


class ArmedWriter(SinkStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with _armed("task"):
            return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        with _armed("driver"):
            super().commit(messages, batchId)


@contextmanager
def _armed(who: str) -> Iterator[None]:
    plan = _take(who)
    if plan is None:
        yield
        return
    ask, lock, left = BrokerConnection.submit, threading.Lock(), plan["at"]

    def counted(client: BrokerConnection, correlation_id: int, frame: bytes, asker: Any) -> None:
        nonlocal left
        with lock:
            if plan["api"] in (None, int.from_bytes(frame[_API_KEY], "big")):
                left -= 1
                if left == 0:
                    if plan["is_sent"]:
                        ask(client, correlation_id, frame, asker)
                    _die(plan)
        ask(client, correlation_id, frame, asker)

    BrokerConnection.submit = counted  # type: ignore[method-assign]
    try:
        yield
    finally:
        BrokerConnection.submit = ask  # type: ignore[method-assign]


def _take(who: str) -> Mapping[str, Any] | None:
    for path in sorted(Path(os.environ["PENSTOCK_DEATHS"]).glob("*.json")):
        plan: Mapping[str, Any] = json.loads(path.read_text())
        if plan["who"] != who:
            return None
        taken = path.with_suffix(".taken")
        try:
            path.rename(taken)
        except FileNotFoundError:
            continue  # another task took the file
        return {**plan, "taken": taken}
    return None


def _die(plan: Mapping[str, Any]) -> None:
    plan["taken"].rename(plan["taken"].with_suffix(".died"))
    if plan["who"] == "driver":
        kill_session(os.getsid(0))
    os.kill(os.getpid(), signal.SIGKILL)
