"""Administration of schedules: `Admin().schedules`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.client.errors import (
    ClientError,
    InvalidSetting,
    MessageTooLarge,
    TimedOut,
    TopicUnknown,
)
from penstock.client.internal_calls import InternalCalls
from penstock.client.internal_connection import InternalConnection

if TYPE_CHECKING:
    from penstock.internal_client.schedules import ScheduleCalls, ScheduleDetails, ScheduleSummary

T = TypeVar("T")
Headers = Mapping[str, str | bytes] | Sequence[tuple[str, str | bytes | None]]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ScheduleUnknown(ClientError, LookupError):
    """The schedule does not exist."""


_ERRORS: Final[dict[str, type[ClientError]]] = {
    "RESOURCE_NOT_FOUND": ScheduleUnknown,
    "UNKNOWN_TOPIC_OR_PARTITION": TopicUnknown,
    "INVALID_REQUEST": InvalidSetting,
    "INVALID_TOPIC_EXCEPTION": InvalidSetting,
    "INVALID_RECORD": InvalidSetting,
    "MESSAGE_TOO_LARGE": MessageTooLarge,
    "REQUEST_TIMED_OUT": TimedOut,
}


@dataclass(frozen=True, slots=True)
class ScheduleListing:
    name: str
    cron: str
    timezone: str
    topic: str
    catch_up: str
    paused: bool
    next: datetime | None
    """Next time at which the schedule fires; None while the schedule is paused."""
    last: datetime | None
    """Last scheduled time for which a message was sent."""
    fired: int
    missed: int
    """Number of scheduled times for which no message was sent."""


@dataclass(frozen=True, slots=True)
class Schedule(ScheduleListing):
    created: datetime
    next_times: tuple[datetime, ...]
    """The next five times at which the schedule fires."""
    in_flight: datetime | None
    """Scheduled time of the message that is being written; None if there is none."""
    problem: str
    """Reason why the schedule cannot fire; empty if it can."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Schedules:
    def __init__(self, connection: InternalConnection, timeout_s: float) -> None:
        self._calls = InternalCalls(connection, timeout_s, _ERRORS)

    def create(
        self,
        name: str,
        *,
        cron: str,
        topic: str,
        timezone: str = "UTC",
        key: str | bytes | None = None,
        value: str | bytes | None = None,
        headers: Headers = (),
        catch_up: str = "one",
    ) -> Schedule:
        """Create a schedule that sends a message to a topic at recurring times.

        `cron` has five fields, or six with seconds first, or is `@daily` or a similar name, or `@every 90s`. `catch_up`
        says for which missed times a message is sent late: `none`, `one` (the last) or `all`.
        """
        from penstock.internal_client.schedules import NewSchedule

        pairs = headers.items() if isinstance(headers, Mapping) else headers
        content = tuple((header, _bytes(each)) for header, each in pairs)
        new = NewSchedule(name, cron, topic, timezone, _bytes(key), _bytes(value), content, catch_up)
        return _shown(self._run(lambda calls: calls.create(new)))

    def list(self) -> list[ScheduleListing]:
        """List the schedules by name."""
        return [ScheduleListing(**_listing(each)) for each in self._run(lambda calls: calls.all())]

    def describe(self, name: str) -> Schedule:
        """Describe a schedule; ScheduleUnknown if there is none."""
        return _shown(self._run(lambda calls: calls.describe(name)))

    def pause(self, name: str) -> Schedule:
        """Stop a schedule until it is resumed."""
        return _shown(self._run(lambda calls: calls.pause(name)))

    def resume(self, name: str) -> Schedule:
        """Resume a paused schedule. For times during the pause no message is sent."""
        return _shown(self._run(lambda calls: calls.resume(name)))

    def run(self, name: str) -> datetime:
        """Send the message now, in addition to the scheduled times. Returns the time in the header of the message."""
        return _time(self._run(lambda calls: calls.run(name)))

    def delete(self, name: str) -> None:
        """Delete a schedule. The messages that it has sent stay in the topic."""
        self._run(lambda calls: calls.delete(name))

    def _run(self, work: Callable[[ScheduleCalls], Awaitable[T]]) -> T:
        return self._calls.run(lambda client: work(client.schedules))


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _time(time_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=time_ms)


def _listing(summary: ScheduleSummary) -> dict[str, Any]:
    return {
        "name": summary.name,
        "cron": summary.cron,
        "timezone": summary.timezone,
        "topic": summary.topic,
        "catch_up": summary.catch_up,
        "paused": summary.paused,
        "next": None if summary.next_ms is None else _time(summary.next_ms),
        "last": None if summary.last_ms is None else _time(summary.last_ms),
        "fired": summary.fired,
        "missed": summary.missed,
    }


def _shown(details: ScheduleDetails) -> Schedule:
    message = details.message
    return Schedule(
        **_listing(details.summary),
        created=_time(details.created_ms),
        next_times=tuple(map(_time, details.next_times_ms)),
        in_flight=None if details.in_flight_ms is None else _time(details.in_flight_ms),
        problem=details.problem,
        key=None if message is None else message.key,
        value=None if message is None else message.value,
        headers=() if message is None else tuple(message.headers),
    )
