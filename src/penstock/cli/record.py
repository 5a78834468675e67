"""Record on the command line, and its JSON form, which `consume --json` writes and `produce` reads.

Keys, values and header values are strings if they are valid UTF-8, otherwise `{"base64": "..."}`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.cli.failures import ExitCode, Failure
from penstock.records.content import content_crc, content_size

Headers = tuple[tuple[str, bytes | None], ...]

EXAMPLE = 'Write one object per line, such as {"key": "k", "value": "v"}.'
_FIELDS = frozenset({"key", "value", "headers", "partition", "timestamp", "topic", "offset", "size", "crc"})


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class IncomingRecord:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def parse_headers(headers: list[str]) -> Headers:
    """Parse the headers of the option --header. Raises Failure if one is not NAME=VALUE."""
    parsed = []
    for header in headers:
        name, separator, value = header.partition("=")
        if not separator:
            raise Failure(
                f"--header {header!r} is not NAME=VALUE", "Write --header trace=42.", code=ExitCode.USAGE
            )
        parsed.append((name, value.encode()))
    return tuple(parsed)


def to_json(record: IncomingRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _show(record.key),
        "value": _show(record.value),
        "headers": [{"name": name, "value": _show(value)} for name, value in record.headers],
        "size": content_size(record.key, record.value, record.headers),
        "crc": content_crc(record.key, record.value),
    }


def from_json(text: bytes, place: str) -> OutgoingRecord:
    """Parse a line of JSON; `place` is its position for errors. The fields `topic`, `offset`, `size` and `crc` are
    ignored.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{place}: not JSON: {error}", EXAMPLE) from None
    if not isinstance(fields, dict):
        raise Failure(f"{place}: not a JSON object", EXAMPLE)
    unknown = sorted(fields.keys() - _FIELDS)
    if unknown:
        raise Failure(f"{place}: unknown field {unknown[0]!r}", f"Fields are {', '.join(sorted(_FIELDS))}.")
    return OutgoingRecord(
        _read(fields.get("key"), place),
        _read(fields.get("value"), place),
        tuple(_read_headers(fields.get("headers") or (), place)),
        _read_number(fields, "partition", place),
        _read_number(fields, "timestamp", place),
    )


def _show(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _read(value: Any, place: str) -> bytes | None:
    """Return a string as UTF-8, base64 decoded, and any other JSON value as its JSON text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise Failure(
                f"{place}: invalid base64 {str(value['base64'])[:40]!r}: {error}",
                'Write {"base64": "AAEC"} with padding.',
            ) from None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _read_headers(headers: Any, place: str) -> Iterator[tuple[str, bytes | None]]:
    """Yield headers from a list of `{"name": ..., "value": ...}` or from an object of names and values."""
    if isinstance(headers, dict):
        headers = [{"name": name, "value": value} for name, value in headers.items()]
    for header in headers if isinstance(headers, list | tuple) else [headers]:
        if not isinstance(header, dict) or not isinstance(header.get("name"), str):
            raise Failure(
                f"{place}: header {header!r} is not a name and a value",
                'Write "headers": {"name": "value"}.',
            )
        yield header["name"], _read(header.get("value"), place)


def _read_number(fields: dict[str, Any], name: str, place: str) -> int | None:
    value = fields.get(name)
    if value is None or type(value) is int:
        return value
    raise Failure(
        f"{place}: {name} {value!r} is not a whole number", f'Write "{name}": 0, or omit the field.'
    )
