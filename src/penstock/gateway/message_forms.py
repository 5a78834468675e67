"""Conversion of messages between request or response bodies and records.

UTF-8 is shown as text, other bytes as base64 in a separate field (`key_base64`, `value_base64`). For bulk there is a
binary form, in which each message has the length of its key in 4 bytes (big-endian, -1 for none), the key, the length
of its value in 4 bytes (-1 for none), and the value.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error
from struct import Struct
from typing import Any

from penstock.gateway.delays import DELAY_FIELDS, delay_headers
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import iso_time
from penstock.gateway.http.shared_schemas import LONG_MAX, PARTITION, STRING, an_object
from penstock.records.building import NewRecord
from penstock.records.content import HEADER_NAMES, Headers, content_crc, content_size
from penstock.records.iteration import Record

MAX_MESSAGES = 10_000
_LENGTH = Struct(">i")
_BASE64 = {"type": "string", "contentEncoding": "base64"}

NEW_MESSAGE = an_object(
    {
        "key": {"type": ["string", "null"]},
        "key_base64": _BASE64,
        "value": {
            "type": ["string", "null"],
            "description": "Text; null deletes the key in a compacted topic.",
        },
        "value_base64": _BASE64,
        "value_json": {"description": "Any JSON, stored as its text."},
        "headers": {"type": "object", "maxProperties": 100, "additionalProperties": STRING},
        "partition": {
            **PARTITION,
            "description": "Chosen by the key unless given, or in turn without a key.",
        },
        "timestamp_ms": {
            "type": "integer",
            "minimum": 0,
            "maximum": LONG_MAX,
            "description": "Timestamp of the message; the current time unless given.",
        },
        **DELAY_FIELDS,
    },
    required=(),
)
MESSAGE = an_object(
    {
        "partition": {"type": "integer"},
        "offset": {"type": "integer"},
        "timestamp": {"type": "string", "format": "date-time"},
        "timestamp_ms": {"type": "integer"},
        "key": {"type": ["string", "null"]},
        "key_base64": _BASE64,
        "value": {"type": ["string", "null"]},
        "value_base64": _BASE64,
        "headers": {
            "type": "array",
            "items": an_object(
                {"name": STRING, "value": {"type": ["string", "null"]}, "value_base64": _BASE64},
                required=("name",),
            ),
        },
        "size": {
            "type": "integer",
            "description": "Bytes of the key, the value, and header names and values.",
        },
        "crc": {
            "type": "integer",
            "description": "CRC-32C of the key's bytes followed by the value's; an absent one counts as empty.",
        },
    },
    required=("partition", "offset", "timestamp", "timestamp_ms", "headers", "size", "crc"),
)


def read_message(message: dict[str, Any], place: int, now_ms: int) -> NewRecord:
    """Return the record for a message; raises Problem with the message's JSON pointer if it is invalid."""
    pointer = f"/messages/{place}"
    present = [name for name in ("value", "value_base64", "value_json") if name in message]
    values = [name for name in present if message[name] is not None] or present
    if len(values) != 1:
        raise _invalid(pointer, "give one of value, value_base64 and value_json")
    if message.get("key") is not None and "key_base64" in message:
        raise _invalid(pointer, "give key or key_base64, not both")
    if values == ["value_json"]:
        value: bytes | None = json.dumps(
            message["value_json"], ensure_ascii=False, separators=(",", ":")
        ).encode()
    else:
        value = _read_bytes(message, "value", pointer)
    headers: Headers = tuple((name, text.encode()) for name, text in message.get("headers", {}).items())
    headers += delay_headers(message, pointer)
    return NewRecord(
        _read_bytes(message, "key", pointer), value, message.get("timestamp_ms", now_ms), headers
    )


def read_framed(body: bytes, now_ms: int) -> list[NewRecord]:
    records: list[NewRecord] = []
    position = 0
    while position < len(body):
        if len(records) == MAX_MESSAGES:
            raise Problem(413, f"there are more than {MAX_MESSAGES} messages", error="RECORD_LIST_TOO_LARGE")
        key, position = _read_frame(body, position, len(records))
        value, position = _read_frame(body, position, len(records))
        records.append(NewRecord(key, value, now_ms))
    if not records:
        raise Problem(400, "there is no message in the body", error="INVALID_REQUEST")
    return records


def show_record(record: Record, partition: int) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": iso_time(record.timestamp),
        "timestamp_ms": record.timestamp,
        **show_bytes("key", record.key),
        **show_bytes("value", record.value),
        "headers": [
            {"name": _printable(name), **show_bytes("value", value)} for name, value in record.headers
        ],
        "size": content_size(record.key, record.value, record.headers),
        "crc": content_crc(record.key, record.value),
    }


def _printable(name: str) -> str:
    return name if name.isascii() else name.encode(errors=HEADER_NAMES).decode(errors="replace")


def _read_bytes(message: dict[str, Any], name: str, pointer: str) -> bytes | None:
    encoded = message.get(f"{name}_base64")
    if encoded is not None:
        try:
            return b64decode(encoded, validate=True)
        except (Error, ValueError):
            raise _invalid(f"{pointer}/{name}_base64", "this is not base64 with padding") from None
    text: str | None = message.get(name)
    return None if text is None else text.encode()


def show_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def _read_frame(body: bytes, position: int, place: int) -> tuple[bytes | None, int]:
    start = position + _LENGTH.size
    if start > len(body):
        raise _invalid(f"/messages/{place}", "the body ends in the middle of a length field")
    (length,) = _LENGTH.unpack_from(body, position)
    if length == -1:
        return None, start
    if length < 0 or start + length > len(body):
        raise _invalid(f"/messages/{place}", f"the length {length} is more than the rest of the body")
    return body[start : start + length], start + length


def _invalid(pointer: str, detail: str) -> Problem:
    return Problem(400, f"{pointer}: {detail}", error="INVALID_RECORD", pointer=pointer)
