"""Maximum number of messages in one delivery: small at first, then larger while many messages are due. Pure."""

from __future__ import annotations

from penstock.delay.packing import DueMessage
from penstock.delay.pending import PendingMessages

FIRST_DUE = 64
"""Size of the first delivery if many messages are due, so that the first of them need not wait for the others."""
DUE_GROWTH = 4
MAX_DUE = 1_000
"""Maximum number of messages in one delivery."""


class DueLimit:
    def __init__(self) -> None:
        self._limit = FIRST_DUE

    def take(self, pending: PendingMessages, now_ms: int) -> list[DueMessage]:
        """Take the messages of the next delivery."""
        due = pending.take_due(now_ms, self._limit)
        are_all = len(due) < self._limit
        self._limit = FIRST_DUE if are_all else min(MAX_DUE, DUE_GROWTH * self._limit)
        return due
