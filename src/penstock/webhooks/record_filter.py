"""The filter of a webhook: a CEL expression over the messages of its queue, as views have it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.filters.expression import compile_expression, route_test
from penstock.records.iteration import Record

_ROUTE_HEADER = "penstock-route"


class RecordFilter:
    """A compiled filter. A message for which the expression fails does not match, as in a view."""

    def __init__(self, text: str) -> None:
        """Compile the expression; ConfigError with the position of what is wrong."""
        self._route = ""
        self._expression = compile_expression(text, route_test(lambda: self._route))

    def matches(self, record: Record, partition: int) -> bool:
        headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
        self._route = headers.get(_ROUTE_HEADER, "")
        try:
            data = {name: _variable(name, record, partition, headers) for name in self._expression.variables}
            return self._expression.evaluate(data) is True
        except (RuntimeError, ValueError, TypeError, OverflowError, OSError, RecursionError):
            return False


def _variable(name: str, record: Record, partition: int, headers: dict[str, str]) -> Any:
    match name:
        case "key":
            return (record.key or b"").decode(errors="replace")
        case "value":
            return (record.value or b"").decode(errors="replace")
        case "headers":
            return headers
        case "timestamp":
            return datetime.fromtimestamp(record.timestamp / 1000, UTC)
        case "size":
            sizes = sum(len(each.encode()) + len(value or b"") for each, value in record.headers)
            return len(record.key or b"") + len(record.value or b"") + sizes
        case "partition":
            return partition
        case "offset":
            return record.offset
        case "json":
            return msgspec.json.decode(record.value or b"")
        case _:
            return True
