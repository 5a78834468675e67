"""Encoding of messages by their schema, from plain nested mappings.

One mapping serves all versions of a message: fields that a version lacks are skipped, and missing fields get
their default. A name that no version has is an error of the caller and raises TypeError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache
from struct import pack
from typing import Any

from penstock.wire import primitives
from penstock.wire.decoding import EPOCH
from penstock.wire.schema import (
    Direction,
    Entity,
    SchemaField,
    entity_fields,
    is_flexible,
    known_versions,
    load_entity,
)

Encode = Callable[[Any], bytes]
Path = tuple[str, ...]
"""Names of the fields that lead from a message to a nested structure."""

_MILLISECOND = timedelta(milliseconds=1)
_MISSING = object()
_NULL_STRUCT = b"\xff"
_STRUCT = b"\x01"
_PACKED_ARRAYS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q"}


@cache
def message_encoder(direction: Direction, api_key: int, version: int) -> Encode:
    """Return a function that encodes the body of a message from a mapping of field names."""
    return _struct_encoder(load_entity(direction, api_key, version), _Names(direction, api_key, ()))


class _Names:
    """Field names of one structure in all versions. They are needed only to report an unknown name."""

    def __init__(self, direction: Direction, api_key: int, path: Path) -> None:
        self._direction = direction
        self._api_key = api_key
        self._path = path
        self._known: set[str] = set()
        self._unread = known_versions(api_key)

    def inside(self, name: str) -> _Names:
        return _Names(self._direction, self._api_key, (*self._path, name))

    def check(self, names: set[str]) -> None:
        while self._unread and not names <= self._known:
            version = self._unread.pop(0)
            self._known |= _names_at(load_entity(self._direction, self._api_key, version), self._path)
        if not names <= self._known:
            where = ".".join((f"{self._direction} of api key {self._api_key}", *self._path))
            raise TypeError(f"no version of {where} has {', '.join(sorted(names - self._known))}")


def _names_at(entity: Entity, path: Path) -> set[str]:
    for name in path:
        inner = [field.entity for field in entity_fields(entity) if field.name == name]
        if not inner or inner[0] is None:
            return set()
        entity = inner[0]
    return {field.name for field in entity_fields(entity)}


def _struct_encoder(entity: Entity, names: _Names) -> Encode:
    flexible = is_flexible(entity)
    plain = []
    tagged = []
    for field in entity_fields(entity):
        encode_field = _encoder(field, flexible, names)
        default = encode_field(_plain_default(field))
        if field.tag is None:
            plain.append((field.name, encode_field, default))
        else:
            tagged.append((field.name, encode_field, default, field.tag))
    own_names = {field.name for field in entity_fields(entity)}

    def encode(fields: Mapping[str, Any]) -> bytes:
        parts = []
        found = 0
        for name, encode_field, default in plain:
            value = fields.get(name, _MISSING)
            if value is _MISSING:
                parts.append(default)
            else:
                found += 1
                parts.append(encode_field(value))
        if tagged:
            tags = []
            for name, encode_field, default, tag in tagged:
                if name in fields:
                    found += 1
                    encoded = encode_field(fields[name])
                    if encoded != default:
                        tags.append(primitives.tagged(tag, encoded))
            parts += (primitives.unsigned_varint(len(tags)), *tags)
        elif flexible:
            parts.append(primitives.NO_TAGS)
        if found != len(fields):
            names.check(fields.keys() - own_names)
        return b"".join(parts)

    return encode


def _plain_default(field: SchemaField) -> Any:
    if field.entity is not None and not field.is_array and not field.is_nullable:
        return {}
    return field.default


def _encoder(field: SchemaField, flexible: bool, names: _Names) -> Encode:
    if field.entity is not None and not field.is_array and field.is_nullable:
        return _nullable_struct_encoder(_struct_encoder(field.entity, names.inside(field.name)))
    encode_value = _value_encoder(field, flexible, field.is_nullable and not field.is_array, names)
    if not field.is_array:
        return encode_value
    put_count = primitives.compact_array_length if flexible else primitives.array_length
    if field.kafka_type in _PACKED_ARRAYS:
        return _packed_array_encoder(_PACKED_ARRAYS[field.kafka_type], put_count)
    return _array_encoder(encode_value, put_count)


def _value_encoder(field: SchemaField, flexible: bool, nullable: bool, names: _Names) -> Encode:
    if field.entity is not None:
        return _struct_encoder(field.entity, names.inside(field.name))
    if field.kafka_type in _FIXED:
        return _FIXED[field.kafka_type]
    return _SIZED[field.kafka_type, flexible, nullable]


def _array_encoder(encode_element: Encode, put_count: Callable[[int], bytes]) -> Encode:
    def encode(values: Any) -> bytes:
        if values is None:
            return put_count(-1)
        parts = [encode_element(value) for value in values]
        return put_count(len(parts)) + b"".join(parts)

    return encode


def _packed_array_encoder(letter: str, put_count: Callable[[int], bytes]) -> Encode:
    def encode(values: Any) -> bytes:
        if values is None:
            return put_count(-1)
        return put_count(len(values)) + pack(f">{len(values)}{letter}", *values)

    return encode


def _nullable_struct_encoder(encode_struct: Encode) -> Encode:
    def encode(fields: Mapping[str, Any] | None) -> bytes:
        return _NULL_STRUCT if fields is None else _STRUCT + encode_struct(fields)

    return encode


def _milliseconds(value: int | timedelta) -> int:
    return value // _MILLISECOND if isinstance(value, timedelta) else value


def _timedelta_i32(value: int | timedelta) -> bytes:
    return primitives.INT32(_milliseconds(value))


def _timedelta_i64(value: int | timedelta) -> bytes:
    return primitives.INT64(_milliseconds(value))


def _datetime_i64(value: int | datetime | None) -> bytes:
    if value is None:
        return primitives.INT64(-1)
    return primitives.INT64((value - EPOCH) // _MILLISECOND if isinstance(value, datetime) else value)


_FIXED: dict[str, Encode] = {
    "bool": primitives.boolean,
    "int8": primitives.INT8,
    "int16": primitives.INT16,
    "int32": primitives.INT32,
    "int64": primitives.INT64,
    "uint16": primitives.UINT16,
    "float64": primitives.FLOAT64,
    "uuid": primitives.uuid,
    "error_code": primitives.INT16,
    "timedelta_i32": _timedelta_i32,
    "timedelta_i64": _timedelta_i64,
    "datetime_i64": _datetime_i64,
}

_BYTES: dict[tuple[bool, bool], Encode] = {
    (False, False): primitives.bytes_,
    (False, True): primitives.nullable_bytes,
    (True, False): primitives.compact_bytes,
    (True, True): primitives.nullable_compact_bytes,
}

# Writers by type, flexible, nullable.
_SIZED: dict[tuple[str, bool, bool], Encode] = {
    ("string", False, False): primitives.string,
    ("string", False, True): primitives.nullable_string,
    ("string", True, False): primitives.compact_string,
    ("string", True, True): primitives.nullable_compact_string,
    **{("bytes", *form): encode for form, encode in _BYTES.items()},
    **{("records", *form): encode for form, encode in _BYTES.items()},
}
