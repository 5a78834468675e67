"""Limit on concurrent searches, for the gateway and for each client."""

from __future__ import annotations

from collections import Counter

from penstock.gateway.http.problems import Problem

MAX_SEARCHES = 8
MAX_SEARCHES_OF_A_CLIENT = 4


class SearchSlots:
    """Number of searches in progress by client."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()

    def enter(self, client: str) -> None:
        if self._running.total() >= MAX_SEARCHES or self._running[client] >= MAX_SEARCHES_OF_A_CLIENT:
            raise Problem(
                429,
                "too many searches are in progress; wait until one ends, or close one",
                error="THROTTLING_QUOTA_EXCEEDED",
                retriable=True,
                headers={"retry-after": "2"},
            )
        self._running[client] += 1

    def leave(self, client: str) -> None:
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
