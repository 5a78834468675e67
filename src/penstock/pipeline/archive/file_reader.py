"""Reader of archived rows in a task: the rows of one partition in an offset range, ordered by offset.

Files are read one row group at a time, and rows outside the range are filtered out. A table that other tools
have reorganised is therefore read correctly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.archive.table import FILE_COLUMNS, TOPIC_ID, FileBounds
from penstock.pipeline.columns import schema_of
from penstock.pipeline.content_columns import computed, is_computed, with_sources
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.table_store import Store

_ROWS_AT_ONCE = 8_192
_BYTES_AT_ONCE = 4 << 20
_NEEDED = (TOPIC_ID, "partition", "offset")
"""Columns that decide whether a row belongs to the range."""


def read_archived(
    store: Store,
    files: Sequence[FileBounds],
    wanted: OffsetRange,
    columns: tuple[str, ...],
    extra: Sequence[pa.Field] = (),
) -> Iterator[pa.RecordBatch]:
    """Rows of a range ordered by offset. The table's `extra` columns follow the requested ones. Files whose offsets
    overlap are merged.
    """
    chosen = [
        file for file in files if file.may_hold(wanted.topic_id, wanted.partition, wanted.start, wanted.end)
    ]
    for cluster in clusters(chosen):
        readers = [_read_file(store, file.name, wanted, columns, extra) for file in cluster]
        rows = readers[0] if len(readers) == 1 else _merge(readers)
        for batch in rows:
            yield _with_columns(batch, wanted, columns, extra)


def clusters(files: Iterable[FileBounds]) -> list[list[FileBounds]]:
    """Files in offset order, grouped so that files with overlapping offsets are in one group."""
    found: list[list[FileBounds]] = []
    reached = -1
    for file in sorted(files, key=lambda file: file.offsets or (-1, -1)):
        low, high = file.offsets or (-1, 1 << 63)
        if found and low <= reached:
            found[-1].append(file)
        else:
            found.append([file])
        reached = max(reached, high)
    return found


def _read_file(
    store: Store, name: str, wanted: OffsetRange, columns: tuple[str, ...], extra: Sequence[pa.Field]
) -> Iterator[pa.RecordBatch]:
    wanted_columns = with_sources(columns)
    needed = [column for column in FILE_COLUMNS if column in wanted_columns or column in _NEEDED]
    with store.open(name) as source, pq.ParquetFile(source) as file:
        needed += [field.name for field in extra if field.name in file.schema_arrow.names]
        groups = [place for place in range(file.num_row_groups) if _may_hold(file, place, wanted)]
        if not groups:
            return
        rows = sum(file.metadata.row_group(place).num_rows for place in groups)
        size = sum(file.metadata.row_group(place).total_byte_size for place in groups)
        at_once = max(1, min(_ROWS_AT_ONCE, rows * _BYTES_AT_ONCE // max(1, size)))
        for batch in file.iter_batches(at_once, row_groups=groups, columns=needed, use_threads=False):
            kept = batch.filter(_is_in_range(batch, wanted))
            if kept.num_rows:
                yield kept


def _may_hold(file: pq.ParquetFile, place: int, wanted: OffsetRange) -> bool:
    group = file.metadata.row_group(place)
    bounds = {
        column.path_in_schema: (column.statistics.min, column.statistics.max)
        for column in map(group.column, range(group.num_columns))
        if column.is_stats_set and column.statistics is not None and column.statistics.has_min_max
    }
    low, high = bounds.get("offset", (wanted.start, wanted.end))
    first, last = bounds.get("partition", (wanted.partition, wanted.partition))
    return bool(low < wanted.end and high >= wanted.start and first <= wanted.partition <= last)


def _is_in_range(batch: pa.RecordBatch, wanted: OffsetRange) -> pa.Array:
    offset = batch.column("offset")
    conditions = (
        pc.equal(batch.column(TOPIC_ID), wanted.topic_id),
        pc.equal(batch.column("partition"), wanted.partition),
        pc.greater_equal(offset, wanted.start),
        pc.less(offset, wanted.end),
    )
    meant = conditions[0]
    for condition in conditions[1:]:
        meant = pc.and_(meant, condition)
    return meant


def _merge(readers: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merge sorted readers by offset. Each step yields the rows of one reader up to the next offset of any
    other reader.
    """
    heads: list[tuple[pa.RecordBatch, np.ndarray[tuple[int], np.dtype[np.int64]]]] = []
    sources = []
    for reader in readers:
        batch = next(reader, None)
        if batch is not None:
            heads.append((batch, batch.column("offset").to_numpy()))
            sources.append(reader)
    while heads:
        first = min(range(len(heads)), key=lambda place: heads[place][1][0])
        batch, offsets = heads[first]
        others = [head[1][0] for place, head in enumerate(heads) if place != first]
        count = int(np.searchsorted(offsets, min(others))) if others else len(offsets)
        count = max(1, count)
        yield batch.slice(0, count)
        if count < len(offsets):
            heads[first] = (batch.slice(count), offsets[count:])
            continue
        following = next(sources[first], None)
        if following is None:
            del heads[first], sources[first]
        else:
            heads[first] = (following, following.column("offset").to_numpy())


def _with_columns(
    batch: pa.RecordBatch, wanted: OffsetRange, columns: tuple[str, ...], extra: Sequence[pa.Field]
) -> pa.RecordBatch:
    def column(name: str) -> pa.Array:
        if name == "topic":
            return pa.repeat(pa.scalar(wanted.topic), batch.num_rows)
        return computed(name, column) if is_computed(name) else batch.column(name)

    arrays = [column(name) for name in columns]
    for field in extra:
        is_there = field.name in batch.schema.names
        arrays.append(
            batch.column(field.name).cast(field.type) if is_there else pa.nulls(batch.num_rows, field.type)
        )
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*schema_of(columns), *extra]))
