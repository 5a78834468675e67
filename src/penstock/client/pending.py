"""The state of a message between sending and its delivery report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.client.errors import ClientError

SentHeaders = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Stored:
    """Position of a stored message."""

    topic: str
    partition: int
    offset: int | None
    """Offset of the message; None with at-most-once delivery, where the broker sends no response."""


class PendingSend:
    """The outcome of one send, set once by `MessageSender`. An error that was read here is not raised again by other
    calls of the producer.
    """

    __slots__ = ("_on_done", "_on_seen", "_outcome", "headers")

    def __init__(self, on_seen: Callable[[PendingSend], None], headers: SentHeaders) -> None:
        self.headers = headers
        self._outcome: Stored | ClientError | None = None
        self._on_seen = on_seen
        self._on_done: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        return self._outcome is not None

    @property
    def error(self) -> ClientError | None:
        if isinstance(self._outcome, ClientError):
            self._on_seen(self)
            return self._outcome
        return None

    @property
    def stored(self) -> Stored:
        """Position of the message; raises the delivery error if there is one. May be read only when `done` is True."""
        error = self.error
        if error is not None:
            raise error
        assert isinstance(self._outcome, Stored), "not known yet"
        return self._outcome

    def settle(self, outcome: Stored | ClientError) -> None:
        self._outcome = outcome
        for call in self._on_done:
            call()

    def when_done(self, call: Callable[[], None]) -> None:
        self._on_done.append(call)
