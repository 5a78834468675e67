"""Calls of clients about schedules, with their checks of rights.

With WRITE on the topic of a schedule a user may create, pause, resume, run and delete it; with DESCRIBE a user may see
it. Key, value and headers of its messages are shown to users with READ or WRITE on the topic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import BrokerError, ErrorCode
from penstock.objects.coordinator import ObjectCoordinator
from penstock.objects.shard import ObjectShard
from penstock.schedules import schedule as states
from penstock.schedules.agent import ScheduleAgent
from penstock.schedules.recurrence import next_times
from penstock.schedules.schedule import Schedule
from penstock.server.objects.object_calls import ServedCalls, token_of
from penstock.server.objects.schedule_checks import check_definition, check_name, read_definition
from penstock.server.objects.served import Arguments, ServedKind
from penstock.server.produce_rules import writable_topic
from penstock.server.security import Operation, ResourceType

if TYPE_CHECKING:
    from penstock.server.dispatch import Request

NEXT_TIMES: Final = 5


async def _create(request: Request, name: str, arguments: Arguments) -> Any:
    """Create a schedule. A repeated request with the same token succeeds."""
    check_name(name)
    definition = read_definition(arguments)
    writable_topic(request.context, request.caller, definition.topic, None)
    token = token_of(arguments)
    schedule = states.new_schedule(definition, request.context.clock.now_ms(), token)
    check_definition(request.context, name, definition)
    return await _CALLS.create(request, name, schedule, token)


def _resumed(request: Request) -> Callable[[Schedule], Schedule]:
    return partial(states.resume, now_ms=request.context.clock.now_ms())


async def _run(request: Request, name: str, arguments: Arguments) -> Any:
    """Request a firing. A repeated request with the same token adds no second firing."""
    token = token_of(arguments)
    shard = _CALLS.changeable(request, name)
    now_ms = request.context.clock.now_ms()

    def decide(schedule: Schedule) -> Schedule:
        if len(schedule.runs) >= states.MAX_RUNS:
            raise BrokerError(
                ErrorCode.throttling_quota_exceeded,
                f"schedule {name!r} has {len(schedule.runs)} requested firings that wait, which is the maximum; "
                "try again later",
            )
        return states.request_run(schedule, token, now_ms)

    run = states.find_run(await shard.update(name, decide), token)
    return {"name": name, "scheduled_for_ms": now_ms if run is None else run.scheduled_for_ms}


# --- answers


def _entry(request: Request, name: str, schedule: Schedule) -> dict[str, Any] | None:
    definition = schedule.definition
    if not _CALLS.shows(request, schedule):
        return None
    return {
        "name": name,
        "cron": definition.cron,
        "timezone": definition.timezone,
        "topic": definition.topic,
        "catch_up": definition.catch_up.value,
        "paused": schedule.is_paused,
        "next_ms": None if schedule.is_paused else schedule.next_ms,
        "last_ms": schedule.last_scheduled_for_ms,
        "fired": schedule.fired,
        "missed": schedule.missed,
    }


def _show(request: Request, name: str, schedule: Schedule, shard: ObjectShard[Schedule]) -> dict[str, Any]:
    definition, agent = schedule.definition, shard.agent_of(name)
    now_ms = request.context.clock.now_ms()
    shown: dict[str, Any] = {
        **(_entry(request, name, schedule) or {}),
        "created_ms": schedule.created_ms,
        "next_times_ms": next_times(schedule.recurrence, now_ms, NEXT_TIMES),
        "in_flight_ms": None if schedule.intent is None else schedule.intent.scheduled_for_ms,
        "waiting_runs": len(schedule.runs),
        "problem": agent.problem if isinstance(agent, ScheduleAgent) else "",
    }
    if any(
        request.shows(operation, ResourceType.TOPIC, definition.topic)
        for operation in (Operation.READ, Operation.WRITE)
    ):
        shown["message"] = {
            "key": definition.key,
            "value": definition.value,
            "headers": [list(each) for each in definition.headers],
        }
    return msgspec.to_builtins(shown, builtin_types=(bytes,))  # type: ignore[no-any-return]


def _coordinator(request: Request) -> ObjectCoordinator[Schedule]:
    return request.context.objects.schedules


_CALLS: Final = ServedCalls(
    "schedule",
    coordinator_of=_coordinator,
    resource_type=ResourceType.TOPIC,
    resource_of=lambda schedule: schedule.definition.topic,
    change_operation=Operation.WRITE,
    show=_show,
)


def served_schedules(coordinator: ObjectCoordinator[Schedule]) -> ServedKind:
    calls = {
        "create": _create,
        "describe": _CALLS.describe,
        "pause": _CALLS.updating(lambda _: states.pause),
        "resume": _CALLS.updating(_resumed),
        "run": _run,
        "delete": _CALLS.delete,
    }
    return ServedKind(coordinator, calls, frozenset(calls) - {"describe"}, _entry)
