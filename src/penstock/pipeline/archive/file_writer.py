"""Writer of archive files in a task: one Parquet file for each date, written while the rows arrive.

Memory is bounded by GROUP_BYTES for any length of the range. File names are unique, so attempts of the same
task do not conflict. A vacuum deletes files that were never committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.archive.table import DATE, FILE_SCHEMA, LAST_DATE, TOPIC_ID, ArchivedFile
from penstock.pipeline.table_store import Store

GROUP_BYTES = 32 << 20
"""Row group size in bytes; bounds the rows that a task buffers in memory."""
FILE_BYTES = 512 << 20
MAX_OPEN_FILES = 16
_DAY_MS = 86_400_000
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
_EPOCH = date(1970, 1, 1)
_LAST_DAY = (LAST_DATE - _EPOCH).days
_WITH_STATISTICS = [TOPIC_ID, "partition", "offset", "timestamp"]
_WITH_DICTIONARY = [TOPIC_ID, "partition", "timestampType"]


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """Partition that all rows of a file belong to."""

    topic: str
    topic_id: str
    partition: int


def write_files(
    store: Store, origin: SourcePartition, rows: Iterable[pa.RecordBatch], extra: Sequence[pa.Field] = ()
) -> list[ArchivedFile]:
    """Write rows that arrive in offset order; the `extra` columns follow those of the record. The returned files are on
    stable storage.
    """
    with ExitStack() as stack:
        writer = _DailyFiles(store, origin, stack, pa.schema([*FILE_SCHEMA, *extra]))
        for batch in rows:
            writer.take(batch)
        files = writer.finish()
    store.make_durable(file.name for file in files)
    return files


class _DailyFiles:
    def __init__(self, store: Store, origin: SourcePartition, stack: ExitStack, schema: pa.Schema) -> None:
        self._store = store
        self._schema = schema
        self._origin = origin
        self._stack = stack
        self._open: dict[date, _DailyFile] = {}
        self._finished: list[ArchivedFile] = []
        self._gathered: dict[date, list[pa.RecordBatch]] = {}
        self._gathered_bytes = 0

    def take(self, batch: pa.RecordBatch) -> None:
        for day, rows in _by_date(batch):
            self._gathered.setdefault(day, []).append(rows)
            self._gathered_bytes += rows.nbytes
        if self._gathered_bytes >= GROUP_BYTES:
            self._write()

    def finish(self) -> list[ArchivedFile]:
        self._write()
        for day in list(self._open):
            self._close(day)
        return self._finished

    def _write(self) -> None:
        for day, batches in self._gathered.items():
            if day not in self._open and len(self._open) >= MAX_OPEN_FILES:
                self._close(next(iter(self._open)))
            file = self._open.pop(day, None) or _DailyFile(
                self._store, self._origin, day, self._stack, self._schema
            )
            self._open[day] = file  # reinserted at the end: the least recently written file is closed first
            file.write(batches)
            if file.size_bytes >= FILE_BYTES:
                self._close(day)
        self._gathered.clear()
        self._gathered_bytes = 0

    def _close(self, day: date) -> None:
        self._finished.append(self._open.pop(day).close())


class _DailyFile:
    def __init__(
        self, store: Store, origin: SourcePartition, day: date, stack: ExitStack, schema: pa.Schema
    ) -> None:
        self._origin = origin
        self._schema = schema
        self._date = day
        name = f"{origin.partition:05}-{uuid.uuid4().hex}.parquet"
        self._name = f"topic={origin.topic}/{DATE}={day.isoformat()}/{name}"
        self._closing = stack.enter_context(ExitStack())
        self._sink = self._closing.enter_context(store.create(self._name))
        self._writer = self._closing.enter_context(
            pq.ParquetWriter(
                self._sink,
                schema,
                compression="zstd",
                use_dictionary=_WITH_DICTIONARY,
                write_statistics=_WITH_STATISTICS,
            )
        )
        self._rows = 0
        self._offsets: tuple[int, int] | None = None
        self._times: tuple[int, int] | None = None
        self.size_bytes = 0

    def write(self, batches: list[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(
            [_as_stored(batch, self._origin, self._schema) for batch in batches], self._schema
        )
        self._writer.write_table(table)
        self._rows += table.num_rows
        self._offsets = _wider(self._offsets, [_numbers(batch, "offset") for batch in batches])
        self._times = _wider(self._times, [_numbers(batch, "timestamp") // 1000 for batch in batches])
        self.size_bytes = self._sink.tell()

    def close(self) -> ArchivedFile:
        self._writer.close()
        self.size_bytes = self._sink.tell()
        self._closing.close()
        assert self._offsets is not None
        assert self._times is not None
        origin = self._origin
        return ArchivedFile(
            self._name,
            origin.topic,
            origin.topic_id,
            origin.partition,
            self._date,
            self._rows,
            self.size_bytes,
            *self._offsets,
            *self._times,
        )


def _as_stored(batch: pa.RecordBatch, origin: SourcePartition, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.repeat(pa.scalar(origin.topic_id), batch.num_rows) if name == TOPIC_ID else batch.column(name)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _by_date(batch: pa.RecordBatch) -> Iterator[tuple[date, pa.RecordBatch]]:
    """Split rows by UTC date. Timestamps outside 1970 to 9999 are assigned to the first or last date."""
    days = np.clip(_numbers(batch, "timestamp") // (_DAY_MS * 1000), 0, _LAST_DAY)
    if days.min() == days.max():
        yield _EPOCH + timedelta(days=int(days[0])), batch
        return
    for day in np.unique(days):
        yield _EPOCH + timedelta(days=int(day)), batch.filter(pa.array(days == day))


def _numbers(batch: pa.RecordBatch, column: str) -> Numbers:
    numbers: Numbers = batch.column(column).cast(pa.int64()).to_numpy()
    return numbers


def _wider(bounds: tuple[int, int] | None, columns: list[Numbers]) -> tuple[int, int]:
    low, high = min(int(each.min()) for each in columns), max(int(each.max()) for each in columns)
    return (low, high) if bounds is None else (min(low, bounds[0]), max(high, bounds[1]))
