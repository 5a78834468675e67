"""Decoding of messages by their schema. The `Reader` checks the bytes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from penstock.errors import ErrorCode, ProtocolError
from penstock.wire.reader import Reader
from penstock.wire.schema import Entity, SchemaField, entity_fields, is_flexible

Read = Callable[[Reader], Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ERROR_CODES = {int(code): code for code in ErrorCode}
_NO_UUID = UUID(int=0)
_LONGEST_MS = 999_999_999 * 86_400_000
_NULL_STRUCT = -1
_STRUCT = 1


@cache
def struct_reader(entity: Entity) -> Read:
    """Return a function that reads one `entity` at the current position of a reader."""
    flexible = is_flexible(entity)
    plain = [(field.name, _reader(field, flexible)) for field in entity_fields(entity) if field.tag is None]
    tagged = [field for field in entity_fields(entity) if field.tag is not None]
    defaults = {field.name: field.default for field in tagged}
    by_tag = {field.tag: (field.name, _reader(field, flexible)) for field in tagged}

    def read(reader: Reader) -> Any:
        values = {name: read_field(reader) for name, read_field in plain}
        if by_tag:
            values.update(defaults)
            _read_tags(reader, by_tag, values)
        elif flexible:
            reader.skip_tags()
        return entity(**values)

    return read


def _read_tags(reader: Reader, by_tag: dict[int | None, tuple[str, Read]], values: dict[str, Any]) -> None:
    last = -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        known = by_tag.get(last)
        if known is None:
            reader.position = end
        else:
            name, read_field = known
            values[name] = read_field(reader)
            reader.close_tag(end)


def _reader(field: SchemaField, flexible: bool) -> Read:
    if field.entity is not None and not field.is_array and field.is_nullable:
        return _nullable_struct_reader(struct_reader(field.entity))
    # An array can be null, but its elements cannot.
    element = _value_reader(field, flexible, nullable=field.is_nullable and not field.is_array)
    if not field.is_array:
        return element
    return _array_reader(element, _min_bytes(field, flexible), flexible, field.is_nullable)


def _value_reader(field: SchemaField, flexible: bool, nullable: bool) -> Read:
    if field.entity is not None:
        return struct_reader(field.entity)
    if field.kafka_type in _FIXED:
        return _FIXED[field.kafka_type]
    if field.kafka_type == "datetime_i64":
        return _nullable_datetime if nullable else _datetime
    return _SIZED[field.kafka_type, flexible, nullable]


def _array_reader(element: Read, element_bytes: int, flexible: bool, nullable: bool) -> Read:
    count_by = {
        (False, False): Reader.array_length,
        (False, True): Reader.nullable_array_length,
        (True, False): Reader.compact_array_length,
        (True, True): Reader.nullable_compact_array_length,
    }[flexible, nullable]

    def read(reader: Reader) -> tuple[Any, ...] | None:
        count = count_by(reader, element_bytes)
        return None if count < 0 else tuple([element(reader) for _ in range(count)])

    return read


def _nullable_struct_reader(read_struct: Read) -> Read:
    def read(reader: Reader) -> Any:
        marker = reader.int8()
        if marker not in (_STRUCT, _NULL_STRUCT):
            raise ProtocolError(f"the marker of an optional structure is {marker}, not 1 or -1")
        return read_struct(reader) if marker == _STRUCT else None

    return read


@cache
def _struct_min_bytes(entity: Entity) -> int:
    flexible = is_flexible(entity)
    total = 1 if flexible else 0
    for field in entity_fields(entity):
        if field.tag is None:
            is_counted = field.is_array or (field.entity is not None and field.is_nullable)
            total += (1 if flexible else 4) if is_counted else _min_bytes(field, flexible)
    return total


def _min_bytes(field: SchemaField, flexible: bool) -> int:
    """Return the minimum number of bytes of one value of the field."""
    if field.entity is not None:
        return _struct_min_bytes(field.entity)
    if field.kafka_type in _WIDTHS:
        return _WIDTHS[field.kafka_type]
    if flexible:
        return 1
    return 2 if field.kafka_type == "string" else 4


def _timedelta_i32(reader: Reader) -> timedelta:
    return timedelta(milliseconds=reader.int32())


def _timedelta_i64(reader: Reader) -> timedelta:
    """Read a duration. A value beyond the range of timedelta becomes the maximum; OffsetCommit has had such
    retention times.
    """
    return timedelta(milliseconds=max(-_LONGEST_MS, min(reader.int64(), _LONGEST_MS)))


def _datetime(reader: Reader) -> datetime:
    return EPOCH + timedelta(milliseconds=reader.int64())


def _nullable_datetime(reader: Reader) -> datetime | None:
    milliseconds = reader.int64()
    return None if milliseconds == -1 else EPOCH + timedelta(milliseconds=milliseconds)


def _error_code(reader: Reader) -> ErrorCode:
    return _ERROR_CODES.get(reader.int16(), ErrorCode.unknown_server_error)


def _uuid(reader: Reader) -> UUID | None:
    value = reader.uuid()
    return None if value == _NO_UUID else value


def _copied(read: Callable[[Reader], memoryview]) -> Read:
    return lambda reader: bytes(read(reader))


def _copied_or_null(read: Callable[[Reader], memoryview | None]) -> Read:
    def read_bytes(reader: Reader) -> bytes | None:
        value = read(reader)
        return None if value is None else bytes(value)

    return read_bytes


_FIXED: dict[str, Read] = {
    "bool": Reader.boolean,
    "int8": Reader.int8,
    "int16": Reader.int16,
    "int32": Reader.int32,
    "int64": Reader.int64,
    "uint16": Reader.uint16,
    "float64": Reader.float64,
    "uuid": _uuid,
    "error_code": _error_code,
    "timedelta_i32": _timedelta_i32,
    "timedelta_i64": _timedelta_i64,
}

_WIDTHS = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "float64": 8,
    "uuid": 16,
}

_BYTES: dict[tuple[bool, bool], Read] = {
    (False, False): _copied(Reader.bytes_),
    (False, True): _copied_or_null(Reader.nullable_bytes),
    (True, False): _copied(Reader.compact_bytes),
    (True, True): _copied_or_null(Reader.nullable_compact_bytes),
}

# Readers by type, flexible, nullable.
_SIZED: dict[tuple[str, bool, bool], Read] = {
    ("string", False, False): Reader.string,
    ("string", False, True): Reader.nullable_string,
    ("string", True, False): Reader.compact_string,
    ("string", True, True): Reader.nullable_compact_string,
    **{("bytes", *form): read for form, read in _BYTES.items()},
    **{("records", *form): read for form, read in _BYTES.items()},
}
