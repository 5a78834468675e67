"""Columns of an Avro schema: the fields of a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.declared.problems import SchemaProblem
from penstock.declared.value_types import MAX_DEPTH, Array, Decimal, Field, Map, Simple, Struct, ValueType

_SIMPLE = {
    "string": "string",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "null": "string",
}
_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "uuid": "string",
    "time-millis": "string",
    "time-micros": "string",
}


def is_avro_schema(document: Mapping[str, Any]) -> bool:
    return document.get("type") == "record"


def parse_avro_schema(document: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return the columns of the schema. Raises SchemaProblem."""
    return _fields(document, "", 0)


def _fields(record: Mapping[str, Any], pointer: str, depth: int) -> tuple[Field, ...]:
    if depth > MAX_DEPTH:
        raise SchemaProblem(f"records are nested more than {MAX_DEPTH} deep", pointer)
    if not isinstance(record.get("name"), str):
        raise SchemaProblem("an Avro record needs a name", pointer)
    fields = record.get("fields")
    if not isinstance(fields, list) or not fields:
        raise SchemaProblem("an Avro record needs fields, which become columns", f"{pointer}/fields")
    found = []
    for place, each in enumerate(fields):
        where = f"{pointer}/fields/{place}"
        if not isinstance(each, Mapping) or not isinstance(each.get("name"), str) or "type" not in each:
            raise SchemaProblem("a field of an Avro record has a name and a type", where)
        found.append(Field(each["name"], _type(each["type"], f"{where}/type", depth)))
    return tuple(found)


def _type(kind: Any, pointer: str, depth: int) -> ValueType:
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        return _type(others[0], pointer, depth) if len(others) == 1 else Simple("string")
    if isinstance(kind, str):
        if kind not in _SIMPLE:
            raise SchemaProblem(f"unknown Avro type {kind!r}", pointer)
        return Simple(_SIMPLE[kind])
    if not isinstance(kind, Mapping):
        raise SchemaProblem("an Avro type is a name, a list or a mapping", pointer)
    return _complex(kind, pointer, depth)


def _complex(kind: Mapping[str, Any], pointer: str, depth: int) -> ValueType:
    name, logical = kind.get("type"), kind.get("logicalType")
    if logical in _LOGICAL:
        return Simple(_LOGICAL[logical])
    if logical == "decimal":
        return Decimal(int(kind.get("precision", 10)), int(kind.get("scale", 0)))
    if name == "record":
        return Struct(_fields(kind, pointer, depth + 1))
    if name == "array":
        return Array(_type(kind.get("items"), f"{pointer}/items", depth + 1))
    if name == "map":
        return Map(_type(kind.get("values"), f"{pointer}/values", depth + 1))
    if name == "enum":
        return Simple("string")
    if name == "fixed":
        return Simple("binary")
    return _type(name, f"{pointer}/type", depth)
