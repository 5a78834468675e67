"""Limits for each client: open requests, requests per second, and bytes of request bodies in memory.

A client is an IP address. The refusal of a request by `enter` is sent only when the current second is over: refusals
cost processor time, and a client that retries at once would use up all of it. Memory grows with the number of clients
that have open requests. Loop thread only.
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
        """Create a refusal that the gateway sends after a delay of `held_seconds`."""
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
        """Count a new request; raises LimitExceeded if it exceeds a limit. Every success needs a later `leave`."""
        now = self._clock.monotonic()
        if now >= self._window_end:
            self._recent.clear()
            self._window_end = now + _WINDOW_SECONDS
        recent = self._recent.get(client, 0)
        opened = self._open.get(client, 0)
        if opened >= self._max_open:
            raise self._refuse(
                f"{opened} requests of this address are in progress, which is the maximum; wait for a response",
                self._window_end - now,
            )
        if recent >= self._max_rate:
            raise self._refuse(
                f"more than {self._max_rate} requests of this address in a second", self._window_end - now
            )
        self._recent[client] = recent + 1
        self._open[client] = opened + 1
        self.open_requests += 1

    def admits(self, client: str, size: int) -> bool:
        """True if both `enter`, and `hold` for a body of this size, would succeed now."""
        is_new_window = self._clock.monotonic() >= self._window_end
        return (
            self._open.get(client, 0) < self._max_open
            and (is_new_window or self._recent.get(client, 0) < self._max_rate)
            and self._bytes_of.get(client, 0) + size <= self._max_bytes // 2
            and self._bytes + size <= self._max_bytes
        )

    def leave(self, client: str) -> None:
        self.open_requests -= 1
        left = self._open[client] - 1
        if left:
            self._open[client] = left
        else:
            del self._open[client]

    def hold(self, client: str, size: int) -> None:
        """Reserve memory for `size` bytes of a body; raises LimitExceeded if there is too little. Every success
        needs a later `give_back`.
        """
        own = self._bytes_of.get(client, 0) + size
        if own > self._max_bytes // 2 or self._bytes + size > self._max_bytes:
            raise self._refuse(
                "the bodies of requests in progress fill the memory for request bodies; try again later"
            )
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
