"""The messages that one queue stream holds: those given to its socket and not settled yet. Pure.

A stream holds at most as many messages as its client has granted credit for. A message is held until the response to
its settlement, even if its lock has expired before. So a client that never settles gets no more messages than its
credit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_CREDIT: Final = 1_000
"""Maximum number of messages that one stream holds."""


class HeldMessages:
    __slots__ = ("_credit", "_receipts")

    def __init__(self) -> None:
        self._credit = 0
        self._receipts: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._receipts)

    @property
    def room(self) -> int:
        """Number of further messages that the client has credit for."""
        return max(0, self._credit - len(self._receipts))

    @property
    def receipts(self) -> tuple[str, ...]:
        return tuple(self._receipts)

    def grant(self, credit: int) -> None:
        """Add credit, up to `MAX_CREDIT` in total."""
        self._credit = min(MAX_CREDIT, self._credit + credit)

    def add(self, receipt: str) -> None:
        self._receipts[receipt] = None

    def holds(self, receipt: str) -> bool:
        """True if the stream holds the message with this receipt. Other receipts may not be settled over its socket."""
        return receipt in self._receipts

    def remove(self, receipts: Iterable[str]) -> None:
        """Remove messages after the response to their settlement."""
        for receipt in receipts:
            self._receipts.pop(receipt, None)
