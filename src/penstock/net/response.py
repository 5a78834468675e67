"""Response of a handler to a request: parts to send now, a response that comes later, or none.

A `PendingResponse` is created by the code that prepares the response. Its connection is notified when it
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.records.log_slice import LogSlice

Part: TypeAlias = bytes | bytearray | memoryview | LogSlice
Parts: TypeAlias = list[Part]


class ResponseWaiter(Protocol):
    """Connection, from the point of view of the responses that it waits for."""

    def on_response(self) -> None: ...


class ResponseObserver(Protocol):
    """Observer of responses, such as a dispatcher that counts requests and their durations."""

    def observe(self, api_key: int, started: float) -> None:
        """Count a request whose response is ready now."""
        ...


class PendingResponse:
    """A response that is not ready yet. If `barrier` is True, the connection serves no later request until it
    is ready.
    """

    __slots__ = (
        "_abandoned",
        "_api_key",
        "_connection",
        "_observer",
        "_started",
        "_watchers",
        "barrier",
        "error",
        "is_done",
        "parts",
        "request_bytes",
    )

    def __init__(self, *, barrier: bool = False) -> None:
        self.barrier = barrier
        self.is_done = False
        self.parts: Parts | None = None
        self.error: Exception | None = None
        self.request_bytes = 0
        self._connection: ResponseWaiter | None = None
        self._observer: ResponseObserver | None = None
        self._api_key = 0
        self._started = 0.0
        self._watchers: list[Callable[[], None]] | None = None
        self._abandoned: Callable[[], None] | None = None

    def resolve(self, parts: Parts | None) -> None:
        """Set the response; None if the request has no response."""
        self.parts = parts
        self._finish()

    def fail(self, error: Exception) -> None:
        """Report that there will be no response, which closes the connection."""
        self.error = error
        self._finish()

    def lift_barrier(self) -> None:
        """Let the connection serve later requests, although this response is not ready yet."""
        self.barrier = False
        if self._connection is not None:
            self._connection.on_response()

    def observe(self, observer: ResponseObserver, api_key: int, started: float) -> None:
        """Call `observer.observe` when the response is ready."""
        self._observer = observer
        self._api_key = api_key
        self._started = started

    def when_done(self, watcher: Callable[[], None]) -> None:
        if self._watchers is None:
            self._watchers = []
        self._watchers.append(watcher)

    def when_abandoned(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the client disconnects, so that the work on the response can stop."""
        self._abandoned = callback

    @property
    def can_be_abandoned(self) -> bool:
        """True if the work may stop when the client disconnects, because it only waits."""
        return self._abandoned is not None

    def attach(self, connection: ResponseWaiter) -> None:
        self._connection = connection

    def abandon(self) -> None:
        """Call the callback of `when_abandoned`, because the client has disconnected."""
        if not self.is_done:
            self.is_done = True
            self._observer = self._watchers = None
            callback, self._abandoned = self._abandoned, None
            if callback is not None:
                callback()

    def _finish(self) -> None:
        self.is_done = True
        self.barrier = False
        if self._observer is not None:
            self._observer.observe(self._api_key, self._started)
            self._observer = None
        if self._watchers is not None:
            watchers, self._watchers = self._watchers, None
            for watcher in watchers:
                watcher()
        self._abandoned = None  # The work refers to this object: break the cycle.
        if self._connection is not None:
            self._connection.on_response()


Answer: TypeAlias = Parts | PendingResponse | None
