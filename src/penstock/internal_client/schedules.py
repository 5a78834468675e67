"""Schedules of a cluster: create, list, describe, pause, resume, run and delete them.

Every call may be repeated, because a token in the request identifies a creation or a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.objects import ObjectCalls
from penstock.internal_client.routes import CoordinatorKind, Routes
from penstock.internal_client.transactions import init_producer_id
from penstock.records.content import Headers

CATCH_UPS = ("none", "one", "all")
DEFAULT_CATCH_UP = "one"
DEFAULT_TIMEZONE = "UTC"


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """Schedule to create."""

    name: str
    cron: str
    topic: str
    timezone: str = DEFAULT_TIMEZONE
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    catch_up: str = DEFAULT_CATCH_UP

    def definition(self) -> Mapping[str, Any]:
        return {
            "cron": self.cron,
            "timezone": self.timezone,
            "topic": self.topic,
            "key": self.key,
            "value": self.value,
            "headers": [list(each) for each in self.headers],
            "catch_up": self.catch_up,
        }


@dataclass(frozen=True, slots=True)
class ScheduleSummary:
    """A schedule in a list. Times are milliseconds since the epoch."""

    name: str
    cron: str
    timezone: str
    topic: str
    catch_up: str
    paused: bool
    next_ms: int | None
    """Time of the next firing; None while the schedule is paused."""
    last_ms: int | None
    """Scheduled time of the last firing; None if there was none."""
    fired: int
    missed: int


@dataclass(frozen=True, slots=True)
class ScheduleMessage:
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class ScheduleDetails:
    summary: ScheduleSummary
    created_ms: int
    next_times_ms: tuple[int, ...]
    """Times of the next five firings."""
    in_flight_ms: int | None
    """Time of the firing whose message is being written; None if there is none."""
    waiting_runs: int
    """Number of firings that were requested by `run` and wait."""
    problem: str
    """Reason why the schedule cannot fire; empty if it can."""
    message: ScheduleMessage | None
    """Message of each firing; None if the user may neither read nor write the topic."""


class ScheduleCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._objects = ObjectCalls(routes, CoordinatorKind.SCHEDULE)

    async def all(self) -> list[ScheduleSummary]:
        """All schedules that the user may see, sorted by name."""
        return [ScheduleSummary(**each) for each in await self._objects.all()]

    async def create(self, new: NewSchedule) -> ScheduleDetails:
        """Create a schedule. Raises DUPLICATE_RESOURCE if the name is taken."""
        if new.catch_up not in CATCH_UPS:
            raise BrokerError(
                ErrorCode.invalid_request,
                f"unknown catch-up {new.catch_up[:80]!r}; use one of {', '.join(CATCH_UPS)}",
            )
        arguments = {"definition": new.definition(), "token": await self._new_token()}
        return _details(await self._objects.call(new.name, "create", arguments))

    async def describe(self, name: str) -> ScheduleDetails:
        """Describe a schedule. Raises RESOURCE_NOT_FOUND if it does not exist."""
        return _details(await self._objects.call(name, "describe"))

    async def pause(self, name: str) -> ScheduleDetails:
        return _details(await self._objects.call(name, "pause"))

    async def resume(self, name: str) -> ScheduleDetails:
        """Let a paused schedule fire again, from its next time on. Missed times are skipped."""
        return _details(await self._objects.call(name, "resume"))

    async def run(self, name: str) -> int:
        """Fire now, in addition to the times of the schedule. Returns the time in milliseconds that
        identifies the firing.
        """
        answer = await self._objects.call(name, "run", {"token": await self._new_token()})
        return int(answer["scheduled_for_ms"])

    async def delete(self, name: str) -> None:
        await self._objects.call(name, "delete")

    async def _new_token(self) -> str:
        """Unique token for a request: a producer id, which a cluster never gives out twice."""
        producer = await self._routes.at_any(lambda connection: init_producer_id(connection, None))
        return str(producer.producer_id)


def _details(answer: dict[str, Any]) -> ScheduleDetails:
    message = answer.pop("message", None)
    rest = {name: answer.pop(name) for name in ("created_ms", "in_flight_ms", "waiting_runs", "problem")}
    times = tuple(answer.pop("next_times_ms"))
    if message is not None:
        headers = tuple((name, value) for name, value in message["headers"])
        message = ScheduleMessage(message["key"], message["value"], headers)
    return ScheduleDetails(ScheduleSummary(**answer), next_times_ms=times, message=message, **rest)
