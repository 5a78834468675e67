"""Where transactions begin whose end is not certain: the last stable offset lies below the first of them.

A transaction is open, or its marker is written but not below the high watermark yet: a marker that can still be
lost decides nothing. Loop thread only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class EndedTransaction(NamedTuple):
    marker_offset: int
    first_offset: int


class UnstableOffsets:
    __slots__ = ("_ended", "_open", "_unstable")

    def __init__(self, open_from: Iterable[int] = (), ended: Iterable[EndedTransaction] = ()) -> None:
        self._open = dict.fromkeys(sorted(open_from))
        """First offsets, in order, as those of `_unstable`, which has them all."""
        self._ended = deque(sorted(ended))
        self._unstable = dict.fromkeys(sorted((*self._open, *(end.first_offset for end in self._ended))))

    @property
    def ended(self) -> tuple[EndedTransaction, ...]:
        """Those whose marker may still be lost, and some others."""
        return tuple(self._ended)

    def open(self, first_offset: int) -> None:
        """Offsets come in order."""
        self._open[first_offset] = self._unstable[first_offset] = None

    def end(self, first_offset: int, marker_offset: int) -> None:
        del self._open[first_offset]
        self._ended.append(EndedTransaction(marker_offset, first_offset))

    def first_open(self) -> int | None:
        return next(iter(self._open), None)

    def first(self, high_watermark: int) -> int | None:
        """The first unstable offset; None where everything is stable."""
        unstable = self._unstable
        if not unstable:
            return None
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            del unstable[ended.popleft().first_offset]
        return next(iter(unstable), None)
