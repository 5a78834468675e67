"""Writer of Spark rows to a Delta table without Delta's jars: tasks write Parquet files, the driver commits
them.

A write replaces all rows of the table in one commit, or fails without any change. Files of older versions and of killed
runs are vacuumed later. A table with other columns is refused.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.pipeline.archive.file_writer import GROUP_BYTES
from penstock.pipeline.archive.maintenance import KEEP_HOURS
from penstock.pipeline.archive.table import not_shared
from penstock.pipeline.causes import storage_reason
from penstock.pipeline.table_store import Store, storage_options

RESULT = "name string, size_bytes long, rows long"


class TableRefused(PenstockError):
    """The location contains something other than a suitable table, or cannot be written."""


def overwrite(frame: DataFrame, store: Store) -> int:
    """Replace all rows of the table. Returns the number of rows written."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    _make_or_check(store, schema)

    def write(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_file(store, schema, rows)

    written = frame.mapInArrow(write, RESULT).collect()
    now_ms = SystemClock().now_ms()
    added: list[AddAction | RemoveAction] = [
        AddAction(each.name, each.size_bytes, {}, now_ms, True, json.dumps({"numRecords": each.rows}))
        for each in written
    ]
    problem = store.problem_with({each.name: each.size_bytes for each in written})
    if problem is not None:
        raise TableRefused(not_shared(store, problem))
    store.make_durable(each.name for each in written)
    table = DeltaTable(store.uri, storage_options=storage_options(store))
    before = table.version()
    try:
        table.create_write_transaction(added, "overwrite", table.schema(), [])
    except CommitFailedError as error:
        raise TableRefused(
            f"another writer changed {store.uri} at the same time, try again: {error}"
        ) from error
    table = DeltaTable(store.uri, storage_options=storage_options(store))
    store.make_versions_durable(before, table.version())
    table.vacuum(retention_hours=KEEP_HOURS, dry_run=False, enforce_retention_duration=False, full=True)
    return sum(each.rows for each in written)


def _make_or_check(store: Store, schema: pa.Schema) -> None:
    try:
        table = DeltaTable(store.uri, storage_options=storage_options(store))
    except TableNotFoundError:
        if store.is_occupied():
            raise TableRefused(
                f"{store.uri} is not empty and not a Delta table: choose another location"
            ) from None
        DeltaTable.create(store.uri, schema, storage_options=storage_options(store), mode="ignore")
    except (DeltaError, OSError) as error:
        raise TableRefused(f"the table at {store.uri} cannot be read: {storage_reason(error)}") from error
    else:
        if [field.name for field in pa.schema(table.schema())] != schema.names:
            raise TableRefused(f"the table at {store.uri} has other columns than {', '.join(schema.names)}")


def write_file(
    store: Store, schema: pa.Schema, rows: Iterator[pa.RecordBatch], required: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Write one file in a task; no file if there are no rows. Raises TableRefused for a null in one of the `required`
    columns.
    """
    name, count, size = f"{uuid.uuid4().hex}.parquet", 0, 0
    gathered: list[pa.RecordBatch] = []
    with ExitStack() as stack:
        sink: pa.NativeFile | None = None
        writer: pq.ParquetWriter | None = None
        for batch in _with_end_marker(rows):
            if batch is not None and batch.num_rows:
                gathered.append(batch)
            if gathered and (batch is None or sum(each.nbytes for each in gathered) >= GROUP_BYTES):
                if writer is None:
                    sink = stack.enter_context(store.create(name))
                    writer = stack.enter_context(pq.ParquetWriter(sink, schema, compression="zstd"))
                table = pa.Table.from_batches(gathered).cast(schema)
                for column in required:
                    if table[column].null_count:
                        raise TableRefused(f"the column {column!r} of {store.uri} must not be null")
                writer.write_table(table)
                count += table.num_rows
                gathered = []
        if writer is not None and sink is not None:
            writer.close()
            size = sink.tell()
    if count:
        yield pa.RecordBatch.from_pydict({"name": [name], "size_bytes": [size], "rows": [count]})


def _with_end_marker(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
    yield from rows
    yield None
