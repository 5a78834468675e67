"""The fields of every message in every version, from the `kio` package, which generates them from Kafka's
specifications.

Only kio's descriptions are used. Its reader must not see untrusted bytes, because it trusts the length of an
array and can abort the process. The module of a version is loaded when its first message arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import timedelta
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, cast, get_args, get_origin

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from penstock.errors import ProtocolError

Direction = Literal["request", "response"]
Entity: TypeAlias = Callable[..., Any]
"""Message class of kio, or a class nested in one."""

_IMPLICIT_DEFAULTS: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": None,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
}


_EXTENDED: dict[tuple[Direction, int, int], tuple[str, str]] = {
    ("response", 21, 2): ("penstock.wire.delete_records", "DeleteRecordsResult"),
}
"""Messages to which Penstock adds tagged fields, with the module and class that describe them."""


@dataclass(frozen=True, slots=True)
class SchemaField:
    name: str
    kafka_type: str
    """kio's name for the type of the value or of each element; "struct" for an entity."""
    entity: Entity | None
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any
    """Value of the field in a message that does not contain it."""


@cache
def load_entity(direction: Direction, api_key: int, version: int) -> Entity:
    """Return the message class. Raises ProtocolError if there is none."""
    extended = _EXTENDED.get((direction, api_key, version))
    if extended is not None:
        module, name = extended
        return cast(Entity, getattr(import_module(module), name))
    try:
        if direction == "request":
            return load_request_schema(api_key, version)
        return load_response_schema(api_key, version)
    except KioIndexError:
        raise ProtocolError(f"no version {version} of api key {api_key}") from None


def known_versions(api_key: int) -> list[int]:
    """Return the versions that have a schema, newest first."""
    return sorted(schema_name_map[api_key_map[api_key]], reverse=True)


@cache
def entity_fields(entity: Entity) -> tuple[SchemaField, ...]:
    """Return the fields in the order of their encoding. Tagged fields come last, ordered by tag."""
    described = [_describe(field) for field in fields(cast(Any, entity))]
    return tuple(sorted(described, key=lambda field: -1 if field.tag is None else field.tag))


def is_flexible(entity: Entity) -> bool:
    return bool(cast(Any, entity).__flexible__)


def _describe(field: Any) -> SchemaField:
    value_type, is_nullable = _strip_optional(field.type)
    is_array = get_origin(value_type) is tuple
    if is_array:
        value_type, _ = _strip_optional(get_args(value_type)[0])
    entity = cast(Entity, value_type) if is_dataclass(value_type) else None
    kafka_type = "struct" if entity is not None else field.metadata["kafka_type"]
    return SchemaField(
        name=field.name,
        kafka_type=kafka_type,
        entity=entity,
        is_array=is_array,
        is_nullable=is_nullable,
        tag=field.metadata.get("tag"),
        default=_default(field, entity, is_array, is_nullable),
    )


def _strip_optional(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is UnionType:
        (inner,) = (each for each in get_args(annotation) if each is not NoneType)
        return inner, True
    return annotation, False


def _default(field: Any, entity: Entity | None, is_array: bool, is_nullable: bool) -> Any:
    if field.default is not MISSING:
        return field.default
    if is_array:
        return ()
    if is_nullable:
        return None
    if entity is not None:
        return entity(**{inner.name: inner.default for inner in entity_fields(entity)})
    return _IMPLICIT_DEFAULTS.get(field.metadata["kafka_type"], 0)
