"""Validation of the parameters and the body of a request against the declaration of its endpoint.

An invalid request raises a Problem with the reason. Undeclared parameters are refused too, because ignoring
them would hide a mistake of the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from penstock.gateway.http import strict_json
from penstock.gateway.http.endpoint import JSON, Endpoint, Parameter
from penstock.gateway.http.exchange import HttpExchange
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.schema import Mismatch, accepts, check, parse

MAX_QUERY_PARAMETERS = 32

Headers = Mapping[bytes, bytes]
"""Headers by lower-case name. The values of a repeated header are joined with commas, as HTTP specifies."""


def collect_headers(given: Sequence[tuple[bytes, bytes]]) -> Headers:
    headers = dict(given)
    if len(headers) != len(given):
        headers = {}
        for name, value in given:
            headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def read_parameters(
    endpoint: Endpoint, in_path: Mapping[str, str], query_string: bytes, headers: Headers
) -> dict[str, Any]:
    texts = dict(in_path)
    declared = endpoint.by_name
    for name, text in _read_query(query_string):
        parameter = declared.get(name)
        if parameter is None or parameter.place != "query":
            known = [each.name for each in endpoint.parameters if each.place == "query"]
            hint = f"the parameters are: {', '.join(known)}" if known else "this path has no parameters"
            raise _invalid(f"there is no parameter {name[:80]!r}; {hint}")
        if name in texts:
            raise _invalid(f"the parameter {name} is given twice")
        texts[name] = text
    values: dict[str, Any] = {}
    for name, parameter in declared.items():
        text_or_none = _header(headers, parameter.header) if parameter.place == "header" else texts.get(name)
        if text_or_none == "" and is_absent_when_empty(parameter):
            text_or_none = None
        if text_or_none is not None:
            values[name] = _parse(parameter, text_or_none)
        elif parameter.required:
            raise _invalid(f"the parameter {name} is missing")
        elif "default" in parameter.schema:
            values[name] = parameter.schema["default"]
    return values


def is_absent_when_empty(parameter: Parameter) -> bool:
    """True if an empty value (`name=`) means that the parameter is absent: for optional query parameters that do
    not accept an empty text.

    Headers are not included: an Idempotency-Key that a script left empty by mistake must be refused.
    """
    if parameter.place != "query" or parameter.required:
        return False
    return parameter.schema["type"] != "string" or not accepts("", parameter.schema)


def content_type_of(endpoint: Endpoint, headers: Headers, *, is_foreign: bool) -> str:
    """Return the media type of a request's body; raises Problem if the endpoint does not accept it.

    `is_foreign` is true for a request from a web page of another origin. Browsers let such a page send a body
    without a Content-Type, so only other requests may omit it if they send JSON.
    """
    if not endpoint.bodies:
        raise _invalid(f"{endpoint.method} takes no body at this path")
    if b"content-encoding" in headers and (
        (_header(headers, b"content-encoding") or "identity").lower() != "identity"
    ):
        raise Problem(415, "send the body as it is, without Content-Encoding", error="INVALID_REQUEST")
    given = _header(headers, b"content-type") or ""
    if given in endpoint.bodies:
        return given
    if not given and endpoint.assumes_json and not is_foreign:
        return JSON
    media_type, _, rest = given.partition(";")
    media_type = media_type.strip().lower()
    charset = rest.strip().lower().replace(" ", "").replace('"', "")
    if media_type not in endpoint.bodies or charset not in ("", "charset=utf-8"):
        wanted = " or ".join(endpoint.bodies)
        raise Problem(415, f"this path needs a body with Content-Type: {wanted}", error="INVALID_REQUEST")
    return media_type


async def read_body(
    exchange: HttpExchange, headers: Headers, max_bytes: int, hold: Callable[[int], None]
) -> bytes:
    """Read the body of a request. `hold` is called with the size of each piece before the piece is stored."""
    if int(headers.get(b"content-length", b"0")) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    while True:
        chunk, has_more = await exchange.read_piece()
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        hold(len(chunk))
        chunks.append(chunk)
        if not has_more:
            return b"".join(chunks)


def read_json(endpoint: Endpoint, body: bytes) -> Any:
    value = strict_json.parse(body)
    schema = endpoint.bodies[JSON]
    if schema is not None:
        try:
            check(value, schema)
        except Mismatch as error:
            place = error.pointer or "the body"
            raise Problem(400, f"{place}: {error}", error="INVALID_REQUEST", pointer=error.pointer) from None
    return value


def has_body(headers: Headers) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def _read_query(query_string: bytes) -> list[tuple[str, str]]:
    if not query_string:
        return []
    try:
        fields = query_string.decode("ascii").split("&")
        if len(fields) > MAX_QUERY_PARAMETERS:
            raise _invalid(f"there are more than {MAX_QUERY_PARAMETERS} parameters")
        return [_read_field(field) for field in fields if field]
    except UnicodeDecodeError:
        raise _invalid("the query has bytes that are not UTF-8; percent-encode them") from None


def _read_field(field: str) -> tuple[str, str]:
    if "%" in field or "+" in field:
        name, _, value = field.replace("+", " ").partition("=")
        return unquote(name, errors="strict"), unquote(value, errors="strict")
    name, _, value = field.partition("=")
    return name, value


def _header(headers: Headers, name: bytes) -> str | None:
    value = headers.get(name)
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _invalid(f"the header {name.decode()} is not UTF-8") from None


def _parse(parameter: Parameter, text: str) -> Any:
    try:
        return parse(text, parameter.schema)
    except Mismatch as error:
        raise _invalid(f"{parameter.name}={text[:80]!r}: {error}") from None


def _too_large(max_bytes: int) -> Problem:
    return Problem(413, f"the body is larger than {max_bytes} bytes", error="MESSAGE_TOO_LARGE")


def _invalid(detail: str) -> Problem:
    return Problem(400, detail, error="INVALID_REQUEST")
