"""Rows with the columns of the record followed by typed columns, for the source and the archiver. Runs in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.declared.value_schema import ValueSchema
from penstock.pipeline.options import SourceOptions
from penstock.pipeline.typed.value_decoder import ValueDecoder


def typed_rows(options: SourceOptions, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the columns of the option valueSchema. Without the option, rows are returned unchanged."""
    found, _ = typed_by(options.value_schema, rows, hides_value=options.hides_value)
    return found


def typed_by(
    schema: ValueSchema | None, rows: Iterator[pa.RecordBatch], *, hides_value: bool = False
) -> tuple[Iterator[pa.RecordBatch], Sequence[pa.Field]]:
    """Add the columns of a schema to rows. Returns the rows and the added columns."""
    if schema is None:
        return rows, ()
    decoder = ValueDecoder(schema)
    return (_typed(decoder, batch, hides_value) for batch in rows), decoder.fields


def _typed(decoder: ValueDecoder, batch: pa.RecordBatch, hides_value: bool) -> pa.RecordBatch:
    kept = [
        (field, batch.column(field.name))
        for field in batch.schema
        if field.name != "value" or not hides_value
    ]
    columns = decoder.decode(batch.column("value"))
    return pa.RecordBatch.from_arrays(
        [*(column for _, column in kept), *columns],
        schema=pa.schema([*(field for field, _ in kept), *decoder.fields]),
    )
