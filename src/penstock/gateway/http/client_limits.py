"""How much one client may ask at a time and in a second, and send, so that no client takes what others need.

A client is an address until there are users. Who asks too much hears of it when the second is over: refusals cost time
too, and whoever asks again at once would have all of it. Memory is bounded by the clients that ask at present. Loop
thread only.
"""

from __future__ import annotations

from penstock.clock import Clock
from penstock.config import (
    GATEWAY_BODIES_MAX_BYTES,
    GATEWAY_CLIENT_MAX_REQUEST_RATE,
    GATEWAY_CLIENT_MAX_REQUESTS,
    BrokerConfig,
)
from penstock.gateway.http.problems import Problem

_WINDOW_SECONDS = 1.0


class LimitExceeded(Problem):
    def __init__(self, detail: str, held_seconds: float) -> None:
        """To be told after so many seconds."""
        super().__init__(
            429,
            detail,
            error="THROTTLING_QUOTA_EXCEEDED",
            retriable=True,
            headers={"retry-after": "1"},
        )
        self.held_seconds = held_seconds


class ClientLimits:
    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.refusals = 0
        self.open_requests = 0
        self._max_open = config[GATEWAY_CLIENT_MAX_REQUESTS]
        self._max_rate = config[GATEWAY_CLIENT_MAX_REQUEST_RATE]
        self._clock = clock
        self._max_bytes = config[GATEWAY_BODIES_MAX_BYTES]
        self._bytes = 0
        self._bytes_of: dict[str, int] = {}
        self._open: dict[str, int] = {}
        self._recent: dict[str, int] = {}
        self._window_end = 0.0

    def enter(self, client: str) -> None:
        """One more request; TooMuch where it is one too many. Who enters leaves."""
        now = self._clock.monotonic()
        if now >= self._window_end:
            self._recent.clear()
            self._window_end = now + _WINDOW_SECONDS
        recent = self._recent.get(client, 0)
        opened = self._open.get(client, 0)
        if opened >= self._max_open:
            raise self._refuse(
                f"{opened} requests of this address are unanswered; wait for one of them",
                self._window_end - now,
            )
        if recent >= self._max_rate:
            raise self._refuse(
                f"more than {self._max_rate} requests of this address in a second", self._window_end - now
            )
        self._recent[client] = recent + 1
        self._open[client] = opened + 1
        self.open_requests += 1

    def leave(self, client: str) -> None:
        self.open_requests -= 1
        left = self._open[client] - 1
        if left:
            self._open[client] = left
        else:
            del self._open[client]

    def hold(self, client: str, size: int) -> None:
        """So many bytes of a body more; TooMuch where there is no room. Whoever holds some gives them back."""
        own = self._bytes_of.get(client, 0) + size
        if own > self._max_bytes // 2 or self._bytes + size > self._max_bytes:
            raise self._refuse("the bodies of unanswered requests take all the memory there is for them")
        self._bytes_of[client] = own
        self._bytes += size

    def give_back(self, client: str, size: int) -> None:
        if not size:
            return
        self._bytes -= size
        left = self._bytes_of[client] - size
        if left:
            self._bytes_of[client] = left
        else:
            del self._bytes_of[client]

    def _refuse(self, detail: str, held_seconds: float = 0.0) -> LimitExceeded:
        self.refusals += 1
        return LimitExceeded(detail, held_seconds)
