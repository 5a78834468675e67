"""Series of figures over time: ten minutes in steps of 2 s, and 24 hours in steps of a minute.

The number of series is bounded, and each takes at most 14 KB of memory. If the limit of a kind is reached, a
name with a greater value replaces the one with the smallest value. Values are only in memory, so they begin with
the start of the process. Pure: times are arguments.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from math import isnan, nan

FINE_STEP_MS = 2_000
FINE_STEPS = 300
COARSE_STEP_MS = 60_000
COARSE_STEPS = 1_440
MAX_NAMES = 200
"""Maximum number of names of each kind that have series."""


class Ring:
    """Latest values of a series, one for each step of time; NaN for a step without a value."""

    __slots__ = ("_last_step", "_size", "_values", "step_ms")

    def __init__(self, step_ms: int, size: int) -> None:
        self.step_ms = step_ms
        self._size = size
        self._values = array("d", [nan]) * size
        self._last_step = -1

    def put(self, time_ms: int, value: float) -> None:
        """Set the value of the step that contains `time_ms`. It replaces an earlier value of that step."""
        step = time_ms // self.step_ms
        if step < self._last_step:
            return
        first_new = max(self._last_step + 1, step - self._size + 1)
        for skipped in range(first_new, step):
            self._values[skipped % self._size] = nan
        self._values[step % self._size] = value
        self._last_step = step

    def until(self, time_ms: int) -> list[float | None]:
        """Return the values of all steps up to `time_ms`, oldest first; None for a step without a value."""
        end = time_ms // self.step_ms
        return [self._at(step) for step in range(end - self._size + 1, end + 1)]

    def _at(self, step: int) -> float | None:
        if step > self._last_step or step <= self._last_step - self._size or step < 0:
            return None
        value = self._values[step % self._size]
        return None if isnan(value) else value


class Series:
    """One figure over time in both resolutions. The value of a coarse step is the mean of its fine values."""

    __slots__ = ("_count", "_minute", "_sum", "coarse", "fine")

    def __init__(self) -> None:
        self.fine = Ring(FINE_STEP_MS, FINE_STEPS)
        self.coarse = Ring(COARSE_STEP_MS, COARSE_STEPS)
        self._minute = -1
        self._sum = 0.0
        self._count = 0

    def put(self, time_ms: int, value: float) -> None:
        minute = time_ms // COARSE_STEP_MS
        if minute != self._minute:
            self._minute, self._sum, self._count = minute, 0.0, 0
        self._sum += value
        self._count += 1
        self.fine.put(time_ms, value)
        self.coarse.put(time_ms, self._sum / self._count)


class History:
    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, dict[str, Series]]] = {}
        self._latest: dict[str, dict[str, float]] = {}

    def put(self, kind: str, name: str, time_ms: int, figures: Mapping[str, float]) -> None:
        """Add the figures of a name. The first figure decides which names are kept at the limit."""
        names = self._kinds.setdefault(kind, {})
        latest = self._latest.setdefault(kind, {})
        busy = next(iter(figures.values()))
        if name not in names and not self._makes_room(names, latest, busy):
            return
        latest[name] = busy
        series = names.setdefault(name, {})
        for figure, value in figures.items():
            series.setdefault(figure, Series()).put(time_ms, value)

    def names(self, kind: str) -> list[str]:
        return list(self._kinds.get(kind, {}))

    def get(self, kind: str, name: str, figure: str) -> Series | None:
        return self._kinds.get(kind, {}).get(name, {}).get(figure)

    def forget(self, kind: str, name: str) -> None:
        """Drop the series of a name that no longer exists."""
        self._kinds.get(kind, {}).pop(name, None)
        self._latest.get(kind, {}).pop(name, None)

    def _makes_room(self, names: dict[str, dict[str, Series]], latest: dict[str, float], busy: float) -> bool:
        if len(names) < MAX_NAMES:
            return True
        idlest = min(latest, key=latest.__getitem__)
        if latest[idlest] >= busy:
            return False
        del names[idlest], latest[idlest]
        return True
