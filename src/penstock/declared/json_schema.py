"""Columns of a JSON Schema: the properties of an object. Constraints on values are checked row by row, not here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.declared.problems import SchemaProblem, below
from penstock.declared.value_types import MAX_DEPTH, Array, Field, Map, Simple, Struct, ValueType

_SIMPLE = {"integer": "bigint", "number": "double", "boolean": "boolean", "null": "string"}
_FORMATS = {"date-time": "timestamp", "date": "date"}


def is_json_schema(document: Mapping[str, Any]) -> bool:
    return document.get("type") != "record" and bool(document.keys() & {"properties", "$schema", "type"})


def parse_json_schema(document: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return the columns of the schema. Raises SchemaProblem."""
    if "object" not in _types(document, ""):
        raise SchemaProblem("a JSON Schema of values has the type object, with properties", "/type")
    return _fields(document, "", 0)


def _fields(schema: Mapping[str, Any], pointer: str, depth: int) -> tuple[Field, ...]:
    if depth > MAX_DEPTH:
        raise SchemaProblem(f"objects are nested more than {MAX_DEPTH} deep", pointer)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise SchemaProblem("an object needs properties, which become columns", f"{pointer}/properties")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        raise SchemaProblem("required is a list of names", f"{pointer}/required")
    return tuple(
        Field(
            str(name),
            _type(each, below(f"{pointer}/properties", name), depth),
            _is_required(name, each, required),
        )
        for name, each in properties.items()
    )


def _is_required(name: str, schema: Any, required: list[str]) -> bool:
    return name in required and "null" not in _types(schema, "")


def _type(schema: Any, pointer: str, depth: int) -> ValueType:
    if not isinstance(schema, Mapping):
        raise SchemaProblem("a property is a schema, such as {type: string}", pointer)
    kinds = [each for each in _types(schema, pointer) if each != "null"]
    if set(kinds) == {"integer", "number"}:
        kinds = ["number"]
    if len(kinds) != 1:
        return Simple("string")  # a value that may have several types becomes its JSON text
    [kind] = kinds
    if kind == "string":
        return Simple(_FORMATS.get(schema.get("format", ""), "string"))
    if kind == "array":
        items = schema.get("items")
        return (
            Array(_type(items, f"{pointer}/items", depth + 1))
            if items is not None
            else Array(Simple("string"))
        )
    if kind == "object":
        return _object(schema, pointer, depth)
    if kind not in _SIMPLE:
        raise SchemaProblem(f"unknown type {kind!r}", f"{pointer}/type")
    return Simple(_SIMPLE[kind])


def _object(schema: Mapping[str, Any], pointer: str, depth: int) -> ValueType:
    if schema.get("properties"):
        return Struct(_fields(schema, pointer, depth + 1))
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return Map(_type(values, f"{pointer}/additionalProperties", depth + 1))
    return Simple("string")


def _types(schema: Any, pointer: str) -> list[str]:
    if not isinstance(schema, Mapping):
        return []
    found = schema.get("type", "object" if "properties" in schema else [])
    kinds = [found] if isinstance(found, str) else found
    if not isinstance(kinds, list) or not all(isinstance(each, str) for each in kinds):
        raise SchemaProblem("type is a name or a list of names", f"{pointer}/type")
    return list(kinds)
