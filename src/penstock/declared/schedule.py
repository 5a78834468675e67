"""Schedule of a pipeline: at an interval, by a cron expression, or continuously. Pure: times are arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from penstock.errors import PenstockError

CONTINUOUS = "continuous"
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d{1,9})(ms|[smhdw])")


class ScheduleProblem(PenstockError):
    pass


@dataclass(frozen=True, slots=True)
class PipelineSchedule:
    """Schedule of a pipeline: `every_ms` or `cron`, or neither for a continuous pipeline."""

    every_ms: int | None = None
    cron: str | None = None
    timezone: str = "UTC"

    @property
    def is_continuous(self) -> bool:
        return self.every_ms is None and self.cron is None

    def next_ms(self, last_ms: int | None, now_ms: int) -> int:
        """Time of the next run after a run that started at `last_ms` (None before the first one). A run whose time has
        passed is due.

        With an interval the first run is due at once, with a cron expression at the next time of the expression.
        Several missed runs are replaced by one run.
        """
        if self.cron is None:
            return now_ms if last_ms is None else last_ms + (self.every_ms or 0)
        return _next_by_cron(self.cron, self.timezone, now_ms if last_ms is None else last_ms)


def parse_duration_ms(text: object) -> int:
    """Parse `500ms`, `30s`, `15m`, `2h`, `7d` or `4w`. Raises ScheduleProblem."""
    found = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or int(found[1]) == 0:
        raise ScheduleProblem(f"{text!r} is not a duration: write 30s, 15m, 2h, 7d or 4w")
    return int(found[1]) * _UNITS_MS[found[2]]


def check_cron(text: str, timezone: str) -> None:
    """Raise ScheduleProblem if the expression or the timezone is invalid, or if the expression has no time."""
    _next_by_cron(text, timezone, 0)


def _next_by_cron(text: str, timezone: str, after_ms: int) -> int:
    from cronsim import CronSim, CronSimError

    try:
        zone = ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        raise ScheduleProblem(
            f"there is no timezone {timezone!r}: write a name such as Europe/Paris"
        ) from None
    try:
        # CronSim yields times after its start, in whole minutes.
        following: datetime = next(
            CronSim(text, datetime.fromtimestamp(after_ms / 1000, UTC).astimezone(zone))
        )
    except CronSimError:
        raise ScheduleProblem(
            f"{text!r} is not a cron expression: write minute, hour, day, month and weekday, such as '*/5 * * * *'"
        ) from None
    except StopIteration:
        raise ScheduleProblem(f"{text!r} does not fire in the next years") from None
    return int(following.timestamp() * 1000)
