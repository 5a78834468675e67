"""Random messages of any API and version, as nested mappings for the encoder."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.index import api_key_map, schema_name_map

from penstock.errors import ErrorCode
from penstock.wire.messages import encode_request, encode_response
from penstock.wire.schema import Direction, Entity, SchemaField, entity_fields, load_entity

ALL_VERSIONS = [(key, version) for key, name in api_key_map.items() for version in schema_name_map[name]]

_INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "timedelta_i32": 31, "timedelta_i64": 40}
_CODES = list(ErrorCode)
_LETTERS = "abc-._é漢\x00 "


def random_message(random: Random, direction: Direction, api_key: int, version: int) -> dict[str, Any]:
    return _random_struct(random, load_entity(direction, api_key, version))


def random_body(random: Random, direction: Direction, api_key: int, version: int) -> bytes:
    encode = encode_request if direction == "request" else encode_response
    return encode(api_key, version, random_message(random, direction, api_key, version))


def _random_struct(random: Random, entity: Entity) -> dict[str, Any]:
    return {
        field.name: _random_field(random, field)
        for field in entity_fields(entity)
        if random.random() < 0.9  # some fields keep their default
    }


def _random_field(random: Random, field: SchemaField) -> Any:
    # A tagged field that is null is absent.
    if field.is_nullable and field.tag is None and random.random() < 0.3:
        return None
    if field.is_array:
        return [_random_value(random, field) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    return _random_value(random, field)


def _random_value(random: Random, field: SchemaField) -> Any:
    kind = field.kafka_type
    if field.entity is not None:
        return _random_struct(random, field.entity)
    if kind in _INTEGERS:
        bits = random.randrange(_INTEGERS[kind] + 1)
        return random.randrange(-(2**bits), 2**bits)
    if kind == "string":
        return "".join(random.choices(_LETTERS, k=random.choice((0, 3, 20, 200))))
    if kind in ("bytes", "records"):
        return random.randbytes(random.choice((0, 3, 200)))
    others: dict[str, Callable[[], Any]] = {
        "bool": lambda: random.random() < 0.5,
        "uint16": lambda: random.randrange(2**16),
        "float64": lambda: random.random(),
        "uuid": lambda: UUID(int=random.getrandbits(128)),
        "error_code": lambda: random.choice(_CODES),
        "datetime_i64": lambda: random.randrange(2**41),
    }
    return others[kind]()
