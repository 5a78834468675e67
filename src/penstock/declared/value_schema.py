"""Schema of record values: a DDL string, a JSON Schema or an Avro schema, and the columns that values become.

Values are JSON for a DDL string or a JSON Schema, and have Avro's binary encoding for an Avro schema. The column of a
field that has the name of a column of the record (`key`, `timestamp`, ...) gets the prefix `value_`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.declared.avro_schema import is_avro_schema, parse_avro_schema
from penstock.declared.ddl import parse_ddl
from penstock.declared.json_schema import is_json_schema, parse_json_schema
from penstock.declared.problems import SchemaProblem
from penstock.declared.value_types import Field

JSON, AVRO = "json", "avro"
ERROR = "value_error"
"""Column with the reason why a value does not match its schema; null if it matches."""
RECORD_COLUMNS = frozenset(
    {
        "key",
        "value",
        "topic",
        "topic_id",
        "partition",
        "offset",
        "timestamp",
        "timestamptype",
        "createtimestamp",
        "headers",
        "date",
        "size",
        "crc",
        ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class ValueSchema:
    fields: tuple[Field, ...]
    encoding: str
    """Encoding of values: `json` or `avro`."""
    source: str
    """DDL string, or the JSON text of a JSON Schema or an Avro schema."""

    @property
    def document(self) -> Mapping[str, Any] | None:
        """The JSON Schema or Avro schema; None for a DDL string."""
        return json.loads(self.source) if self.source.lstrip().startswith("{") else None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in the order of the fields."""
        return tuple(column_of(field.name) for field in self.fields)

    def ddl(self) -> str:
        return ", ".join(Field(column_of(each.name), each.type).ddl() for each in self.fields)


def column_of(field: str) -> str:
    return f"value_{field}" if field.lower() in RECORD_COLUMNS else field


def parse_schema(given: str | Mapping[str, Any]) -> ValueSchema:
    """Parse a schema: DDL text, JSON text, or the document of a JSON Schema or an Avro schema. Raises SchemaProblem."""
    if isinstance(given, str) and not given.lstrip().startswith("{"):
        return _checked(ValueSchema(parse_ddl(given), JSON, given))
    document = _document(given)
    source = json.dumps(document)
    if is_avro_schema(document):
        return _checked(ValueSchema(parse_avro_schema(document), AVRO, source))
    if is_json_schema(document):
        return _checked(ValueSchema(parse_json_schema(document), JSON, source))
    raise SchemaProblem(
        "this is neither a JSON Schema (type: object, properties) nor an Avro schema (type: record, fields)"
    )


def _document(given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(given, str):
        return given
    try:
        found = json.loads(given)
    except ValueError as error:
        raise SchemaProblem(f"this is not valid JSON ({error})") from None
    if not isinstance(found, dict):
        raise SchemaProblem("a schema is a mapping, or a string such as `id bigint, name string`")
    return found


def _checked(schema: ValueSchema) -> ValueSchema:
    seen: set[str] = set()
    for column in schema.columns:
        if column.lower() in seen:
            raise SchemaProblem(f"two fields become the column {column!r}")
        seen.add(column.lower())
    return schema
