"""JSON schemas of the OpenAPI document, and the validation of a value against one.

The supported part of JSON Schema 2020-12 is type, enum of strings, properties, required,
additionalProperties, items, and bounds of numbers, strings and arrays. An optional field of an object that is
null or an empty string counts as absent, unless its schema accepts that value. A `Mismatch` has a JSON pointer
to the invalid part and a message with the expected form. Values come from `strict_json.py` or from the text of
a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
ABSENT = (None, "")
"""Values of an optional field that count as absent."""
_NO_BOUND = 2**63
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,9})?", re.ASCII)


class Mismatch(Exception):
    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(message)
        self.pointer = pointer

    def within(self, name: str) -> Mismatch:
        """Return this mismatch with the pointer extended: it occurred in the part `name` of the value."""
        return Mismatch(f"/{name}{self.pointer}", str(self))


def check(value: Any, schema: Schema) -> None:
    """Raise Mismatch unless the value matches the schema. Optional fields that count as absent are removed from it."""
    expected = schema.get("type")
    if type(value) is str and expected == "string":
        _check_text(value, schema)
        return
    if expected is not None and not _has_type(value, expected):
        names = expected if isinstance(expected, str) else " or ".join(expected)
        raise Mismatch("", f"give {_article(names)}")
    if isinstance(value, str):
        _check_text(value, schema)
    elif isinstance(value, dict):
        _check_object(value, schema)
    elif isinstance(value, list):
        _check_list(value, schema)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            raise Mismatch("", f"give a number {_range(low, high)}")


def _check_text(value: str, schema: Schema) -> None:
    if len(value) > schema.get("maxLength", _NO_BOUND) or len(value) < schema.get("minLength", 0):
        _check_size(len(value), schema, "Length", "characters")
    if "enum" in schema and value not in schema["enum"]:
        raise Mismatch("", f"give one of {', '.join(each for each in schema['enum'] if each is not None)}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        raise Mismatch("", schema.get("x-expected", f"give text that matches {schema['pattern']}"))


def _check_list(value: list[Any], schema: Schema) -> None:
    _check_size(len(value), schema, "Items", "items")
    items = schema.get("items")
    if items is None:
        return
    for place, each in enumerate(value):
        try:
            check(each, items)
        except Mismatch as error:
            raise error.within(str(place)) from None


def _check_object(value: dict[str, Any], schema: Schema) -> None:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    absent: list[str] = []
    for name in required:
        if name not in value:
            raise Mismatch("", f"{name} is missing")
    others = schema.get("additionalProperties", True)
    if "maxProperties" in schema or "minProperties" in schema:
        _check_size(len(value), schema, "Properties", "fields")
    for name, each in value.items():
        inner = properties.get(name, others)
        try:
            if inner is False:
                known = ", ".join(properties) or "none"
                raise Mismatch("", f"there is no such field; the fields are: {known}")
            if inner is not True:
                check(each, inner)
        except Mismatch as error:
            if each in ABSENT and name in properties and name not in required:
                absent.append(name)
                continue
            raise error.within(_escape(name)) from None
    for name in absent:
        del value[name]


def accepts(value: Any, schema: Schema) -> bool:
    """True if the value matches the schema."""
    try:
        check(value, schema)
    except Mismatch:
        return False
    return True


def with_absent(schema: Schema) -> Schema:
    """Return the schema of a request body as `check` applies it: optional fields also accept null and ""."""
    shown = dict(schema)
    required = schema.get("required", ())
    if "properties" in schema:
        shown["properties"] = {
            name: with_absent(each) if name in required else _or_absent(with_absent(each))
            for name, each in schema["properties"].items()
        }
    if "items" in schema:
        shown["items"] = with_absent(schema["items"])
    return shown


def _or_absent(schema: Schema) -> Schema:
    others = [value for value in ABSENT if not accepts(value, schema)]
    return {"anyOf": [schema, {"enum": others}]} if others else schema


def parse(text: str, schema: Schema) -> Any:
    """Parse the value of a parameter from its text."""
    expected = schema["type"]
    value: Any = text
    if expected == "integer":
        if not _INTEGER.fullmatch(text):
            raise Mismatch("", "give a whole number")
        value = int(text)
    elif expected == "number":
        if not _NUMBER.fullmatch(text):
            raise Mismatch("", "give a number")
        value = float(text)
    elif expected == "boolean":
        if text not in ("true", "false"):
            raise Mismatch("", "give true or false")
        value = text == "true"
    check(value, schema)
    return value


def _has_type(value: Any, expected: str | list[str] | tuple[str, ...]) -> bool:
    if isinstance(value, bool):
        return "boolean" in expected
    if isinstance(expected, str):
        return isinstance(value, _TYPES[expected])
    return any(isinstance(value, _TYPES[name]) for name in expected)


def _check_size(size: int, schema: Schema, suffix: str, what: str) -> None:
    low, high = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if (low is not None and size < low) or (high is not None and size > high):
        raise Mismatch("", f"there are {size} {what}; give {_range(low, high)}")


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return f"of {low} or more"
    return f"of {high} at most" if low is None else f"from {low} to {high}"


def _article(names: str) -> str:
    return f"an {names}" if names[0] in "aio" else f"a {names}"


def _escape(name: str) -> str:
    return name[:80].replace("~", "~0").replace("/", "~1")
