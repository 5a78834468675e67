"""Output formats of `penstock consume`: the value, a template, or JSON.

Unprintable characters are escaped on a terminal, so that a record cannot control the terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.record import IncomingRecord, to_json
from penstock.cli.times import show_time

Form = Callable[[IncomingRecord], bytes]

_FIELDS: dict[str, Callable[[IncomingRecord], bytes]] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: str(record.partition).encode(),
    "offset": lambda record: str(record.offset).encode(),
    "timestamp": lambda record: str(record.timestamp_ms).encode(),
    "time": lambda record: show_time(record.timestamp_ms).encode(),
    "key": lambda record: record.key or b"",
    "value": lambda record: record.value or b"",
    "headers": lambda record: b",".join(
        name.encode() + b"=" + (value or b"") for name, value in record.headers
    ),
}
_PIECE = re.compile(r"\{\{|\{(\w*)\}|\\[tn\\]")
_LITERALS = {"{{": b"{", "\\t": b"\t", "\\n": b"\n", "\\\\": b"\\"}


def json_form(record: IncomingRecord) -> bytes:
    return json.dumps(to_json(record)).encode() + b"\n"


def value_form(*, escape: bool) -> Form:
    return template_form("{value}\\n", escape=escape)


def template_form(template: str, *, escape: bool) -> Form:
    """Return a format that fills a template. Raises Failure if the template names an unknown field."""
    pieces: list[bytes | Callable[[IncomingRecord], bytes]] = []
    position = 0
    for match in _PIECE.finditer(template):
        pieces.append(template[position : match.start()].encode())
        position = match.end()
        pieces.append(_LITERALS[match[0]] if match[1] is None else _field(match[1]))
    pieces.append(template[position:].encode())

    def form(record: IncomingRecord) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else clean(piece(record)) for piece in pieces)

    clean = _escape if escape else bytes
    return form


def _field(name: str) -> Callable[[IncomingRecord], bytes]:
    if name not in _FIELDS:
        raise Failure(
            f"--format names the unknown field {{{name}}}",
            f"Fields are {', '.join(_FIELDS)}.",
            code=ExitCode.USAGE,
        )
    return _FIELDS[name]


def _escape(content: bytes) -> bytes:
    text = content.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text).encode()
