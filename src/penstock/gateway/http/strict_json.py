"""Strict JSON parser for untrusted input. It refuses ambiguous text, which RFC 8259 calls unpredictable, with 400.

Refused are duplicate names, NaN and infinities, integers of more than 64 bits, lone surrogates, a byte order
mark, encodings other than UTF-8, and deep nesting.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, NoReturn

import msgspec

from penstock.gateway.http.problems import Problem

MAX_DEPTH = 32
_MAX_INTEGER_CHARACTERS = 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _Refused(ValueError):
    """The text contains a JSON feature that this parser refuses."""


def parse(body: bytes) -> Any:
    """Return the value; raises Problem with the reason if the text is invalid."""
    value = _parse_texts(body)
    if value is not None:
        return value
    if body.startswith(_BYTE_ORDER_MARK):
        raise _problem("the text begins with a byte order mark; leave it out")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _problem(f"byte {error.start} is not UTF-8") from None
    try:
        value = _decode(text)
    except json.JSONDecodeError as error:
        raise _problem(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except _Refused as error:
        raise _problem(str(error)) from None
    except RecursionError:
        raise _problem(f"the text is nested deeper than {MAX_DEPTH}") from None
    if "\\u" in text or text.count("[") + text.count("{") > MAX_DEPTH:
        _check(value, MAX_DEPTH)
    return value


def _parse_texts(body: bytes) -> dict[str, str] | None:
    """Fast path for the most common body, an object of strings without escapes; None if it may be another body.

    Without escapes a string has two quotes, so such an object has four quotes for each name. If it has more, a
    name occurs twice.
    """
    if b"\\" in body:
        return None
    try:
        texts: dict[str, str] = _TEXTS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return texts if body.count(b'"') == 4 * len(texts) else None


def _decode(text: str) -> Any:
    """Decode with Python's own conversion of numbers, which is several times faster than our checks.

    If the text has a large number or is not JSON, it is decoded again, with a check of each number.
    """
    try:
        value = _DECODER.decode(text)
        if _has_small_numbers(value):
            return value
    except ValueError:
        pass
    return _CAREFUL.decode(text)


def _has_small_numbers(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind is int:
        return bool(-(2**63) <= value < 2**64)
    elif kind is float:
        return isfinite(value)
    elif kind is not list:
        return True
    return all(type(each) is str or _has_small_numbers(each) for each in value)


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str):
        _check_text(value)
        return
    if not isinstance(value, dict | list):
        return
    if depth == 0:
        raise _problem(f"the text is nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        for name, each in value.items():
            _check_text(name)
            _check(each, depth - 1)
    else:
        for each in value:
            _check(each, depth - 1)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _problem("a string contains half a surrogate pair, which is not a character") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Refused("a name occurs twice in an object")
    return value


def _integer(text: str) -> int:
    if len(text) > _MAX_INTEGER_CHARACTERS or not -(2**63) <= (value := int(text)) < 2**64:
        raise _Refused("an integer has more than 64 bits")
    return value


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise _Refused("a number is too large")
    return value


def _constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not JSON")


def _problem(what: str) -> Problem:
    return Problem(400, f"the body is not valid JSON: {what}", error="INVALID_REQUEST")


_TEXTS = msgspec.json.Decoder(dict[str, str])
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant)
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_number, parse_constant=_constant
)
