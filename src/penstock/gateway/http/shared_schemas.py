"""Schemas that several endpoints share."""

from __future__ import annotations

from typing import Any

from penstock.gateway.http.schema import Schema

LONG_MAX = 2**63 - 1

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
OFFSET: Schema = {"type": "integer", "minimum": 0, "maximum": LONG_MAX}
PARTITION: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
TIME: Schema = {"type": "string", "format": "date-time"}
TOPIC_NAME: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 249,
    "pattern": "^[a-zA-Z0-9._-]+$",
    "x-expected": "give a topic's name: letters, digits, dots, underscores and hyphens",
}
GROUP_ID: Schema = {"type": "string", "minLength": 1, "maxLength": 1_000}
USER_ID: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
CONFIG_VALUES: Schema = {
    "type": "object",
    "maxProperties": 200,
    "additionalProperties": {"type": "string", "maxLength": 32_767},
}
IDEMPOTENCY_KEY: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": "^[\\x21-\\x7e]+$",
    "x-expected": "give visible ASCII characters",
}

PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "retriable"],
    "properties": {
        "type": STRING,
        "title": STRING,
        "status": INTEGER,
        "detail": {"type": "string", "description": "The problem, and the next step."},
        "error": {"type": "string", "description": "Kafka's name of the error."},
        "retriable": {"type": "boolean", "description": "Whether the same request may succeed later."},
        "request_id": {
            "type": "string",
            "description": "The id of the request in the gateway's log; absent where the bytes were no HTTP request.",
        },
        "outcome": {
            "type": "string",
            "enum": ["unknown"],
            "description": "`unknown` where the change may or may not have been made.",
        },
        "pointer": {"type": "string", "description": "JSON pointer to the place in the body (RFC 6901)."},
    },
}


def an_object(properties: dict[str, Schema], required: tuple[str, ...] | None = None) -> Schema:
    """Return the schema of an object with these fields and no others. `required` has the required fields; None
    means all.
    """
    made: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    needed = list(properties) if required is None else list(required)
    if needed:
        made["required"] = needed
    return made


def an_array(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": items, **bounds}


def nullable(schema: Schema) -> Schema:
    values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **values}
