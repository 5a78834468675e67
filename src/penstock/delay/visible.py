"""Selector for consumers of a topic with delayed messages: it selects all records except hidden ones (`is_hidden`)."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from penstock.delay.headers import HIDING, is_hidden
from penstock.errors import InvalidBatch
from penstock.filters.conditions import Both, Condition, HasHeader, Not, encode
from penstock.records.batch import BatchHeader
from penstock.records.selecting import Match, Selected
from penstock.records.walking import layouts, read_headers

_select_in_c: Callable[[bytes | memoryview, int, bytes, int, int, bool, int], tuple[bytes, int, bytes]] | None
try:
    from penstock.records._walker import choose as _select_in_c
except ImportError:
    _select_in_c = None

_MATCH = Struct("=3q")


def _condition() -> Condition:
    first, *others = (Not(HasHeader(name.encode())) for name in sorted(HIDING))
    condition: Condition = first
    for other in others:
        condition = Both(condition, other)
    return condition


class VisibleRecords:
    def __init__(self, *, in_c: bool = True) -> None:
        self._program = encode(_condition()) if in_c and _select_in_c is not None else None

    @property
    def identity(self) -> bytes:
        return b"visible 1\n"

    def select(self, body: bytes | memoryview, header: BatchHeader) -> Selected:
        """Select the visible records of a decompressed batch. If it is not valid, all records count as failed."""
        try:
            if self._program is not None and _select_in_c is not None:
                packed, failed, _ = _select_in_c(body, header.record_count, self._program, 0, 0, False, 0)
                return Selected([Match._make(each) for each in _MATCH.iter_unpack(packed)], failed)
            return self._select(bytes(body), header)
        except (InvalidBatch, ValueError):
            return Selected([], header.record_count)

    def _select(self, body: bytes, header: BatchHeader) -> Selected:
        shown = [
            Match(layout[0], layout[1], layout[3])
            for layout in layouts(body, header.record_count)
            if not is_hidden(read_headers(body, layout[8], layout[9]))
        ]
        return Selected(shown, 0)


VISIBLE = VisibleRecords()
