"""Schemas of values: DDL strings, JSON Schemas and Avro schemas become columns."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.declared.problems import SchemaProblem
from penstock.declared.value_schema import AVRO, JSON, parse_schema


def test_ddl_schema_with_nested_types_becomes_columns() -> None:
    text = "id bigint not null, `a b` struct<x:int, tags: array<string>>, m map<string, decimal(9,2)>"
    schema = parse_schema(text)
    assert (
        schema.ddl()
        == "`id` bigint, `a b` struct<`x`:int,`tags`:array<string>>, `m` map<string,decimal(9,2)>"
    )
    assert [each.is_required for each in schema.fields] == [True, False, False]
    assert schema.encoding == JSON


def test_fields_named_as_record_columns_get_a_prefix() -> None:
    assert parse_schema("timestamp timestamp, Key string, id int").columns == (
        "value_timestamp",
        "value_Key",
        "id",
    )


def test_json_schema_becomes_a_ddl_schema() -> None:
    document = {
        "type": "object",
        "required": ["id", "note"],
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "note": {"type": ["string", "null"]},
            "lines": {
                "type": "array",
                "items": {"type": "object", "properties": {"sku": {"type": "string"}}},
            },
            "extra": {"type": "object", "additionalProperties": {"type": "number"}},
        },
    }
    schema = parse_schema(document)
    assert schema.ddl() == (
        "`id` bigint, `at` timestamp, `note` string, `lines` array<struct<`sku`:string>>, "
        "`extra` map<string,double>"
    )
    assert [each.name for each in schema.fields if each.is_required] == ["id"]


def test_avro_schema_becomes_a_ddl_schema() -> None:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A"]}},
    ]
    schema = parse_schema({"type": "record", "name": "order", "fields": fields})
    assert (schema.encoding, schema.ddl()) == (AVRO, "`id` bigint, `at` timestamp, `kind` string")


@pytest.mark.parametrize(
    "given",
    [
        "",
        "id",
        "id bigint,",
        "id bigint name string",
        "id bigint, ID int",
        "m map<int,string>",
        "d decimal(50,2)",
        "a array<int",
        "?",
        "{",
        "{}",
        {"type": "string"},
        {"type": "object", "properties": {}},
        {"type": "record", "name": "x", "fields": [{"name": "a"}]},
        "a " + "array<" * 40 + "int" + ">" * 40,
        "value_key int, key int",
    ],
)
def test_unusable_schema_is_refused(given: Any) -> None:
    with pytest.raises(SchemaProblem):
        parse_schema(given)
