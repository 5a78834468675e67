"""The expected firings of schedules: each time once, none early, and with catch-up `all` no time is left out."""

from __future__ import annotations

from collections.abc import Callable

from penstock.records.iteration import Record
from penstock.schedules.message import SCHEDULE, SCHEDULED_FOR
from simulation.models.history import InvariantViolated

INTERVAL_MS = 1_000


class ScheduleModel:
    def __init__(self, clocks: Callable[[], int]) -> None:
        """`clocks` returns the latest time that a broker's clock has shown, also between two looks."""
        self._clocks = clocks
        self.latest_ms = 0
        """Latest time that any broker's clock has shown."""
        self.created_ms: dict[str, int] = {}
        self.requested: dict[str, set[int]] = {}
        """Times of acknowledged requests for a firing, by schedule."""
        self._seen: dict[tuple[str, int], str] = {}
        """Place of each firing, by schedule and time."""

    def look(self) -> None:
        """Note the time of all clocks."""
        self.latest_ms = max(self.latest_ms, self._clocks())

    def on_record(self, place: str, record: Record) -> None:
        """Check a record of the topic; each is read once."""
        self.look()
        headers = dict(record.headers)
        name, time_ms = (headers[SCHEDULE] or b"").decode(), int(headers[SCHEDULED_FOR] or b"")
        if name not in self.created_ms:
            raise InvariantViolated("I15", f"{place}: no schedule has the name {name!r}")
        earlier = self._seen.setdefault((name, time_ms), place)
        if earlier is not place:
            raise InvariantViolated("fired once", f"{name} fired for {time_ms} at {earlier} and {place}")
        if time_ms > self.latest_ms:
            raise InvariantViolated("early", f"{place}: {name} fired for {time_ms} before {self.latest_ms}")

    def check_requested(self) -> None:
        """Check that every acknowledged request for a firing has one."""
        for name, times in self.requested.items():
            for time_ms in times:
                if (name, time_ms) not in self._seen:
                    raise InvariantViolated("fired", f"{name} did not fire for the request of {time_ms}")

    def check_gaps(self, name: str, until_ms: int) -> None:
        """Check that a schedule which leaves out no time has fired for every time up to another."""
        created_ms = self.created_ms[name]
        for time_ms in range(created_ms + INTERVAL_MS, until_ms + 1, INTERVAL_MS):
            if (name, time_ms) not in self._seen:
                raise InvariantViolated("fired", f"{name} did not fire for {time_ms}, but for {until_ms}")
