"""A message on its way: what became of it, for whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.client.errors import ClientError

SentHeaders = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a message was stored."""

    topic: str
    partition: int
    offset: int | None
    """None at most once: nobody waits for the broker's answer."""


class PendingSend:
    """Filled in once, by `Sender`. An error that somebody has looked at here is not raised again elsewhere."""

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
        """Where it was stored; raises what kept it from that. Only when `done`."""
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
