"""The response of a handler to a request: parts to send now, a response that comes later, or none.

A `PendingResponse` belongs to the code that works on the response; its connection is notified when it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.records.log_slice import LogSlice

Part: TypeAlias = bytes | bytearray | memoryview | LogSlice
Parts: TypeAlias = list[Part]


class ResponseWaiter(Protocol):
    """A connection, as seen by the responses it waits for."""

    def on_response(self) -> None: ...


class ResponseObserver(Protocol):
    """A dispatcher, which counts requests and their durations."""

    def observe(self, api_key: int, started: float) -> None:
        """Count a request whose response is ready now."""
        ...


class PendingResponse:
    """A response that is not ready yet. With `barrier` the connection dispatches no later request until it
    is.
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
        """Set the response; None for a request that has none."""
        self.parts = parts
        self._finish()

    def fail(self, error: Exception) -> None:
        """Fail: there will be no response, and the connection is closed."""
        self.error = error
        self._finish()

    def lift_barrier(self) -> None:
        """Let the connection dispatch later requests, although this one has no response yet."""
        self.barrier = False
        if self._connection is not None:
            self._connection.on_response()

    def observe(self, observer: ResponseObserver, api_key: int, started: float) -> None:
        """Tell the observer when the response is ready."""
        self._observer = observer
        self._api_key = api_key
        self._started = started

    def when_done(self, watcher: Callable[[], None]) -> None:
        if self._watchers is None:
            self._watchers = []
        self._watchers.append(watcher)

    def when_abandoned(self, callback: Callable[[], None]) -> None:
        """Call back when the client has disconnected, so that the work can stop."""
        self._abandoned = callback

    @property
    def can_be_abandoned(self) -> bool:
        """Whether the response only waits, so that no work is lost when the wait ends early."""
        return self._abandoned is not None

    def attach(self, connection: ResponseWaiter) -> None:
        self._connection = connection

    def abandon(self) -> None:
        """Tell the work that the client has disconnected."""
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
        self._abandoned = None  # the work holds this object too: no reference cycle is left for the collector
        if self._connection is not None:
            self._connection.on_response()


Answer: TypeAlias = Parts | PendingResponse | None
