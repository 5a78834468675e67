"""First offsets of unstable transactions; the lowest of them is the last stable offset.

A transaction is unstable while it is open, and until its marker is below the high watermark and so cannot be lost. Loop
thread only.
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
        """First offsets of open transactions, in order. `_unstable` contains these too."""
        self._ended = deque(sorted(ended))
        self._unstable = dict.fromkeys(sorted((*self._open, *(end.first_offset for end in self._ended))))

    @property
    def ended(self) -> tuple[EndedTransaction, ...]:
        """Ended transactions whose marker was not below the high watermark at the last call of `first`."""
        return tuple(self._ended)

    def open(self, first_offset: int) -> None:
        """Add a transaction that begins at `first_offset`. Offsets must be added in ascending order."""
        self._open[first_offset] = self._unstable[first_offset] = None

    def end(self, first_offset: int, marker_offset: int) -> None:
        del self._open[first_offset]
        self._ended.append(EndedTransaction(marker_offset, first_offset))

    def first_open(self) -> int | None:
        return next(iter(self._open), None)

    def first(self, high_watermark: int) -> int | None:
        """The first unstable offset; None if everything is stable."""
        unstable = self._unstable
        if not unstable:
            return None
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            del unstable[ended.popleft().first_offset]
        return next(iter(unstable), None)
