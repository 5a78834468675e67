"""Filter of a view: finds the matching records of a batch.

A record for which the evaluation fails does not match and is counted. Only variables to which the expression refers are
decoded. Comparisons run in C (`_walker.choose`) or, if that is not compiled, in Python; all other expressions are
evaluated by CEL. A filter is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any

import msgspec

from penstock.errors import InvalidBatch
from penstock.filters.conditions import (
    FAILED,
    FIRST_MS,
    LAST_MS,
    TRUE,
    Condition,
    encode,
    reads_json,
    translate,
)
from penstock.filters.evaluating import Plain, evaluate
from penstock.filters.expression import compile_expression, route_test
from penstock.filters.routes import ROUTE_HEADER
from penstock.records.batch import LOG_APPEND_TIME_FLAG, BatchHeader
from penstock.records.content import HEADER_NAMES, Headers
from penstock.records.selecting import Match, Selected
from penstock.records.walking import LAYOUT, Layout, layouts, read_headers

_select_in_c: Callable[[bytes | memoryview, int, bytes, int, int, bool, int], tuple[bytes, int, bytes]] | None
try:
    from penstock.records._walker import choose as _select_in_c
except ImportError:
    _select_in_c = None

_MATCH = Struct("=3q")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEMANTICS = b"filter 1\n"
"""Version of the evaluation, part of the identity of filters. It is changed when an expression selects other records
than before, so that stored indexes become invalid.
"""
_FAILURES = (RuntimeError, ValueError, TypeError, OverflowError, RecursionError)


class Filter:
    def __init__(self, text: str, partition: int, *, in_c: bool = True, translated: bool = True) -> None:
        """Compile an expression for one partition; ConfigError if it is not valid."""
        self.text = text
        self._partition = partition
        self._route = ""
        self._expression = compile_expression(text, route_test(lambda: self._route))
        condition = translate(self._expression.tree) if translated else None
        is_compiled = condition is not None and in_c and _select_in_c is not None
        self._program = encode(condition) if condition is not None and is_compiled else None
        if condition is not None and reads_json(condition):
            condition = None  # if the C module is missing or cannot decide
        self._condition = condition
        self._makers = self._choose_makers()

    @property
    def identity(self) -> bytes:
        return filter_identity(self.text)

    @property
    def is_compiled(self) -> bool:
        """True if the filter runs in C."""
        return self._program is not None

    def select(self, body: bytes | memoryview, header: BatchHeader) -> Selected:
        """Select the matching records of a decompressed batch. If it is not valid, all records count as failed."""
        try:
            if self._program is not None:
                return self._select_in_c(body, header)
            judge = self._judge_by_cel if self._condition is None else self._judge_by(self._condition)
            return self._select(bytes(body), header, judge)
        except (InvalidBatch, ValueError):
            return Selected([], header.record_count)

    def _select_in_c(self, body: bytes | memoryview, header: BatchHeader) -> Selected:
        assert _select_in_c is not None
        assert self._program is not None
        has_append_time = bool(header.attributes & LOG_APPEND_TIME_FLAG)
        time = header.max_timestamp if has_append_time else header.base_timestamp
        packed, failed, undecided = _select_in_c(
            body,
            header.record_count,
            self._program,
            header.base_offset,
            time,
            has_append_time,
            self._partition,
        )
        found = Selected([Match._make(each) for each in _MATCH.iter_unpack(packed)], failed)
        if not undecided:
            return found
        left = self._select(bytes(body), header, self._judge_by_cel, LAYOUT.iter_unpack(undecided))
        return Selected(sorted(found.matches + left.matches), failed + left.failed)

    def _select(
        self,
        body: bytes,
        header: BatchHeader,
        judge: Callable[[bytes, BatchHeader, Layout], int],
        records: Iterable[Layout] | None = None,
    ) -> Selected:
        matches, failed = [], 0
        for layout in layouts(body, header.record_count) if records is None else records:
            result = judge(body, header, layout)
            if result == TRUE:
                matches.append(Match(layout[0], layout[1], layout[3]))
            elif result == FAILED:
                failed += 1
        return Selected(matches, failed)

    # --- conditions in Python

    def _judge_by(self, condition: Condition) -> Callable[[bytes, BatchHeader, Layout], int]:
        def judge(body: bytes, header: BatchHeader, layout: Layout) -> int:
            headers = read_headers(body, layout[8], layout[9])
            record = Plain(
                _content(body, layout[4], layout[5]),
                _content(body, layout[6], layout[7]),
                {name.encode(errors=HEADER_NAMES): value or b"" for name, value in headers},
                _size(layout, headers),
                self._partition,
                header.base_offset + layout[3],
                _time_ms(header, layout),
            )
            return evaluate(condition, record)

        return judge

    # --- CEL

    def _judge_by_cel(self, body: bytes, header: BatchHeader, layout: Layout) -> int:
        try:
            data = {name: make(body, header, layout) for name, make in self._makers.items()}
            result = self._expression.evaluate(data)
        except _FAILURES:
            return FAILED
        return int(result) if result is True or result is False else FAILED

    def _choose_makers(self) -> dict[str, Callable[[bytes, BatchHeader, Layout], Any]]:
        makers: dict[str, Callable[[bytes, BatchHeader, Layout], Any]] = {
            "key": lambda body, _, layout: _text(body, layout[4], layout[5]),
            "value": lambda body, _, layout: _text(body, layout[6], layout[7]),
            "headers": lambda body, _, layout: _header_texts(body, layout),
            "timestamp": lambda _, header, layout: _time(header, layout),
            "size": lambda body, _, layout: _size(layout, read_headers(body, layout[8], layout[9])),
            "partition": lambda *_: self._partition,
            "offset": lambda _, header, layout: header.base_offset + layout[3],
            "json": lambda body, _, layout: self._json(body, layout),
            "route": lambda body, _, layout: self._note_route(body, layout),
        }
        return {name: make for name, make in makers.items() if name in self._expression.variables}

    def _json(self, body: bytes, layout: Layout) -> Any:
        document = msgspec.json.decode(_content(body, layout[6], layout[7]))
        fields = self._expression.json_fields
        if fields is None or not isinstance(document, dict):
            return document
        return {name: document[name] for name in fields if name in document}

    def _note_route(self, body: bytes, layout: Layout) -> bool:
        self._route = _header_texts(body, layout).get(ROUTE_HEADER, "")
        return True


def filter_identity(text: str) -> bytes:
    return _SEMANTICS + text.encode()


def _content(body: bytes, start: int, length: int) -> bytes:
    return body[start : start + length] if length > 0 else b""


def _text(body: bytes, start: int, length: int) -> str:
    return _content(body, start, length).decode(errors="replace")


def _header_texts(body: bytes, layout: Layout) -> dict[str, str]:
    headers = read_headers(body, layout[8], layout[9])
    return {
        name.encode(errors=HEADER_NAMES).decode(errors="replace"): (value or b"").decode(errors="replace")
        for name, value in headers
    }


def _size(layout: Layout, headers: Headers) -> int:
    size = max(0, layout[5]) + max(0, layout[7])
    return size + sum(len(name.encode(errors=HEADER_NAMES)) + len(value or b"") for name, value in headers)


def _time_ms(header: BatchHeader, layout: Layout) -> int:
    if header.attributes & LOG_APPEND_TIME_FLAG:
        return header.max_timestamp
    return header.base_timestamp + layout[2]


def _time(header: BatchHeader, layout: Layout) -> datetime:
    time_ms = _time_ms(header, layout)
    if not FIRST_MS <= time_ms <= LAST_MS:
        raise ValueError(f"time {time_ms} is out of range")
    return _EPOCH + timedelta(milliseconds=time_ms)
