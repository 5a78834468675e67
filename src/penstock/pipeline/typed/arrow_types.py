"""Arrow types of value columns: exactly those that Spark expects for the columns of a DDL string."""

from __future__ import annotations

import pyarrow as pa

from penstock.declared.value_schema import ERROR, ValueSchema, column_of
from penstock.declared.value_types import Array, Decimal, Map, Struct, ValueType

_SIMPLE = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def arrow_type(kind: ValueType) -> pa.DataType:
    if isinstance(kind, Decimal):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    if isinstance(kind, Map):
        return pa.map_(pa.string(), pa.field("value", arrow_type(kind.value)))
    if isinstance(kind, Struct):
        return pa.struct([pa.field(each.name, arrow_type(each.type)) for each in kind.fields])
    return _SIMPLE[kind.name]


def value_fields(schema: ValueSchema) -> list[pa.Field]:
    """Columns of the values, followed by the column with the reason of invalid values."""
    columns = [pa.field(column_of(each.name), arrow_type(each.type)) for each in schema.fields]
    return [*columns, pa.field(ERROR, pa.string())]
