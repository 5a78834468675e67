"""Records from standard input or files: lines, JSON lines, or whole files."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import BinaryIO

from penstock.cli.failures import Failure
from penstock.cli.record import Headers, OutgoingRecord, from_json


class InputFormat(StrEnum):
    LINES = "lines"
    JSON = "json"
    FILE = "file"


def read_records(
    stream: BinaryIO,
    name: str,
    form: InputFormat,
    *,
    key_separator: bytes | None = None,
    key: bytes | None = None,
    headers: Headers = (),
    empty_is_null: bool = False,
) -> Iterator[OutgoingRecord]:
    """Yield the records of `stream`; `name` identifies the stream in errors.

    `key` applies to records without a key; `headers` are added to every record.
    """
    if form is InputFormat.FILE:
        yield OutgoingRecord(key, _value(stream.read(), empty_is_null), headers)
        return
    for number, line in enumerate(stream, start=1):
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        place = f"{name}, line {number}"
        if form is InputFormat.JSON:
            if content.strip():
                yield _with_defaults(from_json(content, place), key, headers)
            continue
        line_key = key
        if key_separator is not None:
            line_key, content = _split(content, key_separator, place)
        yield OutgoingRecord(line_key, _value(content, empty_is_null), headers)


def _value(content: bytes, empty_is_null: bool) -> bytes | None:
    return None if empty_is_null and not content else content


def _split(line: bytes, separator: bytes, place: str) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        raise Failure(
            f"{place}: the line does not contain the key separator {separator.decode(errors='replace')!r}",
            "Earlier lines may have been sent. Correct the line, or choose another --key-separator.",
        )
    return key, value


def _with_defaults(record: OutgoingRecord, key: bytes | None, headers: Headers) -> OutgoingRecord:
    return OutgoingRecord(
        key if record.key is None else record.key,
        record.value,
        record.headers + headers,
        record.partition,
        record.timestamp_ms,
    )
