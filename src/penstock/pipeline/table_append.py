"""Append of a micro-batch to a Delta table, exactly once: tasks write Parquet files, one commit adds them.

The commit contains the number of the batch as an application transaction of the query. A batch that was committed
before is not written again, and if two drivers write the same batch, only one can commit. Columns that the table does
not have are added; a column of the table that is missing in the rows is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Field as DeltaField
from deltalake.schema import Schema as DeltaSchema
from deltalake.transaction import AddAction, RemoveAction, Transaction
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.clock import SystemClock
from penstock.pipeline.archive.table import not_shared
from penstock.pipeline.causes import storage_reason
from penstock.pipeline.delta_writer import RESULT, TableRefused, write_file
from penstock.pipeline.restored import WRITER, restored_reason
from penstock.pipeline.table_store import Store, storage_options

_ATTEMPTS = 5
_WRITE_ALL = ", or delete the pipeline and apply it again, which writes all rows of the source"
_CONSTRAINT = "delta.constraints."


def append(
    frame: DataFrame, store: Store, application: str, number: int, *, last_batch: int | None = None
) -> int:
    """Append a batch and return its number of rows; 0 if it was committed before. `last_batch` is the last committed
    batch of the query: raises TableRefused if the table no longer contains it.
    """
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    if last_batch is not None:
        _check_same(store, application, last_batch)
    table = _with_columns(store, schema)
    if (reason := restored_reason(table, store, application)) is not None:
        raise TableRefused(f"{reason}{_WRITE_ALL}")
    if _last(table, application) >= number:
        return 0
    required = _required(store, table, schema)

    def write(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_file(store, schema, rows, required)

    written = frame.mapInArrow(write, RESULT).collect()
    if not written:
        return 0
    problem = store.problem_with({each.name: each.size_bytes for each in written})
    if problem is not None:
        raise TableRefused(not_shared(store, problem))
    store.make_durable(each.name for each in written)
    now_ms = SystemClock().now_ms()
    added: list[AddAction | RemoveAction] = [
        AddAction(each.name, each.size_bytes, {}, now_ms, True, json.dumps({"numRecords": each.rows}))
        for each in written
    ]
    properties = CommitProperties(
        custom_metadata={WRITER: application}, app_transactions=[Transaction(application, number, now_ms)]
    )
    try:
        table.create_write_transaction(added, "append", table.schema(), [], commit_properties=properties)
    except CommitFailedError as error:
        if _last(_open(store), application) >= number:
            return 0
        raise TableRefused(
            f"another writer changed {store.uri} at the same time, the batch is written again: {error}"
        ) from error
    store.make_versions_durable(table.version(), _open(store).version())
    return sum(each.rows for each in written)


def _open(store: Store) -> DeltaTable:
    return DeltaTable(store.uri, storage_options=storage_options(store))


def _check_same(store: Store, application: str, last_batch: int) -> None:
    """Raise TableRefused if the table was deleted, or replaced by another table or by an older copy."""
    try:
        found = _last(_open(store), application)
    except TableNotFoundError:
        found = -1
    except (DeltaError, OSError) as error:
        raise TableRefused(f"the table at {store.uri} cannot be read: {storage_reason(error)}") from error
    if found < 0:
        raise TableRefused(
            f"the table at {store.uri} was deleted or replaced, or the checkpoint was: the table has no rows of this "
            f"query. Restore them{_WRITE_ALL}"
        )
    if found < last_batch:
        raise TableRefused(
            f"the table at {store.uri} was replaced by an older copy: it has the rows up to batch {found}, not up to "
            f"batch {last_batch}. Restore the newer one{_WRITE_ALL}"
        )


def _required(store: Store, table: DeltaTable, schema: pa.Schema) -> list[str]:
    """Columns that must not be null. Raises TableRefused for a table whose constraints this writer cannot check."""
    constraints = [
        name.removeprefix(_CONSTRAINT)
        for name in table.metadata().configuration
        if name.startswith(_CONSTRAINT)
    ]
    if constraints:
        raise TableRefused(
            f"the table at {store.uri} has the constraint {constraints[0]!r}, which is not checked here: drop it, or "
            "choose another table"
        )
    required = [field.name for field in table.schema().fields if not field.nullable]
    missing = [name for name in required if name not in schema.names]
    if missing:
        raise TableRefused(
            f"the column {missing[0]!r} of {store.uri} must not be null, and the rows do not have it: add it in the "
            "transformation, or choose another table"
        )
    return required


def _last(table: DeltaTable, application: str) -> int:
    found = table.transaction_version(application)
    return -1 if found is None else found


def _with_columns(store: Store, schema: pa.Schema) -> DeltaTable:
    """Table with all columns of `schema`; created or extended if necessary. Raises TableRefused."""
    for _ in range(_ATTEMPTS):
        try:
            table = _open(store)
        except TableNotFoundError:
            if store.is_occupied():
                raise TableRefused(
                    f"{store.uri} is not empty and not a Delta table: choose another location"
                ) from None
            DeltaTable.create(store.uri, schema, storage_options=storage_options(store), mode="ignore")
            continue
        except (DeltaError, OSError) as error:
            raise TableRefused(f"the table at {store.uri} cannot be read: {storage_reason(error)}") from error
        new = _new_columns(store, table, schema)
        if not new:
            return table
        try:
            table.alter.add_columns(new)
        except DeltaError as error:
            raise TableRefused(f"cannot add columns to {store.uri}: {storage_reason(error)}") from error
    raise TableRefused(f"other writers change {store.uri} all the time: stop them")


def _new_columns(store: Store, table: DeltaTable, schema: pa.Schema) -> list[DeltaField]:
    present = {field.name: field for field in table.schema().fields}
    wanted = DeltaSchema.from_arrow(schema).fields
    for field in wanted:
        if field.name in present and present[field.name].type != field.type:
            raise TableRefused(
                f"the column {field.name!r} of {store.uri} has the type {_name(present[field.name])}, not "
                f"{_name(field)}: convert it in the transformation, or choose another table"
            )
    if table.metadata().partition_columns:
        raise TableRefused(f"the table at {store.uri} has partition columns: choose another table")
    return [DeltaField(each.name, each.type, nullable=True) for each in wanted if each.name not in present]


def _name(field: DeltaField) -> str:
    return str(getattr(field.type, "type", field.type))
