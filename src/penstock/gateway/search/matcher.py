"""The compiled condition of a search: decides which records match, and which batches cannot contain a match.

A record must match all parts of a query. Text is searched without regard to case. Regular expressions are those of
RE2, whose time is linear in the text, so no pattern can block a search. Pure; may run in a thread pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import re2  # type: ignore[import-untyped]

from penstock.gateway.search.json_path import MISSING, WrongPath, find, parse_path
from penstock.records.iteration import Record

MAX_PATTERN_MEMORY = 8 * 1024 * 1024
Condition = Callable[[Record], bool]


class WrongQuery(ValueError):
    """The query has an invalid part. The message names it and the reason."""


class Matcher:
    def __init__(self, query: Mapping[str, Any]) -> None:
        self._conditions: list[Condition] = []
        self._literals: list[Any] = []
        """Patterns that every batch with a match contains in its decompressed bytes."""
        if "key" in query:
            self._add_key(query["key"].encode())
        if "text" in query:
            self._add_text(query["text"])
        if "regex" in query:
            pattern = _compile(query["regex"])
            self._conditions.append(lambda record: bool(pattern.search(record.value or b"")))
        if "header" in query:
            self._add_header(query["header"], query.get("header_value"))
        if "json_path" in query:
            self._add_json(query["json_path"], query.get("json_value"))
        low, high = query.get("from_ms", -(2**63)), query.get("to_ms", 2**63 - 1)
        self._conditions.append(lambda record: low <= record.timestamp <= high)

    def may_match(self, body: bytes) -> bool:
        """Return False if the decompressed records of a batch cannot contain a match, True if they may."""
        return all(pattern.search(body) for pattern in self._literals)

    def matches(self, record: Record) -> bool:
        return all(condition(record) for condition in self._conditions)

    def _add_key(self, key: bytes) -> None:
        self._literals.append(_compile(re2.escape(key.decode())))
        self._conditions.append(lambda record: record.key == key)

    def _add_text(self, text: str) -> None:
        pattern = _compile("(?i)" + re2.escape(text))
        self._literals.append(pattern)
        self._conditions.append(
            lambda record: bool(
                pattern.search(record.value or b"")
                or pattern.search(record.key or b"")
                or any(pattern.search(value or b"") for _, value in record.headers)
            )
        )

    def _add_header(self, name: str, value: str | None) -> None:
        pattern = None if value is None else _compile("(?i)" + re2.escape(value))
        self._literals.append(_compile(re2.escape(name)))
        self._conditions.append(
            lambda record: any(
                given == name and (pattern is None or pattern.search(content or b""))
                for given, content in record.headers
            )
        )

    def _add_json(self, text: str, value: str | None) -> None:
        try:
            path = parse_path(text)
        except WrongPath as error:
            raise WrongQuery(str(error)) from None

        def condition(record: Record) -> bool:
            try:
                found = find(msgspec.json.decode(record.value or b""), path)
            except (msgspec.DecodeError, RecursionError, ValueError):
                return False
            return found is not MISSING and (value is None or _as_text(found) == value)

        self._conditions.append(condition)


def _as_text(value: Any) -> str:
    """Return a JSON value as the user writes it in a query: a string without quotes, any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.max_mem = MAX_PATTERN_MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise WrongQuery(f"{pattern[:80]!r} is not a regular expression of RE2: {reason}") from None
