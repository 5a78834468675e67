"""Conversion of parsed values to column types. Raises BadValue with the reason; no value is guessed or truncated."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from decimal import DecimalException
from typing import Any

from penstock.declared.value_types import Array, Decimal, Field, Map, Struct, ValueType
from penstock.errors import PenstockError

Convert = Callable[[Any], Any]


class BadValue(PenstockError):
    pass


def converter(kind: ValueType) -> Convert:
    """Return a function that converts a non-null value to the type."""
    if isinstance(kind, Array):
        return _array(kind)
    if isinstance(kind, Map):
        return _map(kind)
    if isinstance(kind, Struct):
        return _struct(kind.fields)
    if isinstance(kind, Decimal):
        return lambda value: _decimal(value, kind)
    return _CONVERSIONS[kind.name]


def _array(kind: Array) -> Convert:
    inner = _nullable(converter(kind.element))

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _not(value, "an array")
        return [_within(f"[{place}]", inner, each) for place, each in enumerate(value)]

    return convert


def _map(kind: Map) -> Convert:
    inner = _nullable(converter(kind.value))

    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise _not(value, "an object")
        return [(str(name), _within(f".{name}", inner, each)) for name, each in value.items()]

    return convert


def _struct(fields: tuple[Field, ...]) -> Convert:
    inner = [(each.name, each.is_required, converter(each.type)) for each in fields]

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _not(value, "an object")
        found: dict[str, Any] = {}
        for name, is_required, change in inner:
            given = value.get(name)
            if given is None:
                if is_required:
                    raise BadValue(f".{name} is missing")
                found[name] = None
            else:
                found[name] = _within(f".{name}", change, given)
        return found

    return convert


def _nullable(change: Convert) -> Convert:
    return lambda value: None if value is None else change(value)


def _within(where: str, change: Convert, value: Any) -> Any:
    try:
        return change(value)
    except BadValue as error:
        raise BadValue(f"{where}{'' if str(error)[:1] in '.[' else ': '}{error}") from None


def _string(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _not(value, "a boolean")
    return value


def _integer(bits: int, name: str) -> Convert:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
            raise _not(value, f"of type {name}")
        return value

    return convert


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _not(value, "a number")
    return float(value)


def _decimal(value: Any, kind: Decimal) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Number):
        raise _not(value, kind.ddl())
    try:
        found = Number(str(value))
        exact = found.quantize(Number(1).scaleb(-kind.scale))
    except DecimalException:
        raise _not(value, f"of type {kind.ddl()}") from None
    if exact != found or len(exact.as_tuple().digits) > kind.precision:
        raise BadValue(f"{value!r} does not fit {kind.ddl()}")
    return exact


def _binary(value: Any) -> bytes:
    """Return bytes unchanged; decode text as base64, which is Spark's form of binary in JSON."""
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise _not(value, "base64") from None


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise _not(value, "a date such as 2026-03-01") from None


def _timestamp(value: Any) -> datetime:
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise _not(value, "a time such as 2026-03-01T12:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _not(value: Any, wanted: str) -> BadValue:
    text = repr(value)
    return BadValue(f"{text if len(text) <= 80 else text[:77] + '...'} is not {wanted}")


_CONVERSIONS: dict[str, Convert] = {
    "string": _string,
    "boolean": _boolean,
    "int": _integer(32, "int"),
    "bigint": _integer(64, "bigint"),
    "float": _float,
    "double": _float,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
}
