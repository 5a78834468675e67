"""Search of a topic as server-sent events: matches, progress, and the end with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.clock import Clock
from penstock.gateway.message_forms import show_record
from penstock.gateway.push.stream import Event
from penstock.gateway.search.search_rounds import SearchRounds

PROGRESS_SECONDS = 0.5


class TopicSearch:
    """`EventSource` that runs a search and sends its results."""

    def __init__(self, rounds: SearchRounds, clock: Clock, on_finish: Callable[[], None]) -> None:
        self.is_exhausted = False
        self._rounds = rounds
        self._clock = clock
        self._number = 0
        self._on_finish = on_finish

    async def take(self, max_events: int, max_bytes: int, patience_seconds: float) -> Sequence[Event]:
        """Search until there are matches, or for `PROGRESS_SECONDS`. The last event has the progress of the search
        or, at its end, the reason why it ended.
        """
        began = self._clock.monotonic()
        events: list[Event] = []
        while not events and not self._rounds.end_reason:
            events = [
                self._event({"type": "match", "message": show_record(record, partition)})
                for partition, record in await self._rounds.next()
            ]
            if self._clock.monotonic() - began > PROGRESS_SECONDS:
                break
        self.is_exhausted = bool(self._rounds.end_reason)
        kind = "end" if self.is_exhausted else "progress"
        return [*events, self._event({"type": kind, **self._rounds.progress()})]

    def _event(self, content: Mapping[str, Any]) -> Event:
        self._number += 1
        return Event(str(self._number), msgspec.json.encode(content))

    async def finish(self) -> None:
        self._on_finish()
