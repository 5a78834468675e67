"""The state of a schedule as a value: its definition, its next time, and the firing in flight.

A firing is decided first and stored as an `Intent` with the partition, the producer id and the sequence of its record.
Only then is the record sent, and sent again with the same sequence until it is written, so the topic contains it once.
A schedule has at most one firing in flight. `next_ms` never decreases while the schedule is active, so that no firing
is repeated when the clock is set back. Every function returns the next state. Pure; times are milliseconds since the
epoch.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.schedules.catch_up import CatchUp, Due, passed_times
from penstock.schedules.recurrence import Recurrence, parse_recurrence

MAX_RUNS: Final = 100
"""Maximum number of requested firings that wait to be sent."""
REMEMBERED_RUNS: Final = 10
_MAX_SEQUENCE: Final = 0x7FFFFFFF


class ScheduleDefinition(msgspec.Struct, frozen=True):
    cron: str
    timezone: str
    topic: str
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    catch_up: CatchUp = CatchUp.ONE

    @property
    def size_bytes(self) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class FiringTarget(msgspec.Struct, frozen=True):
    """Partition of a topic, and the producer that this schedule uses to write to it."""

    topic_id: str
    partition: int
    producer_id: int
    next_sequence: int = 0


class Intent(msgspec.Struct, frozen=True):
    """A firing that was decided; its record may have been sent."""

    scheduled_for_ms: int
    topic_id: str
    partition: int
    producer_id: int
    sequence: int
    from_offset: int
    """High watermark of the partition when the firing was decided; the offset of its record is not below it."""
    decided_ms: int
    is_requested: bool = False


class RequestedRun(msgspec.Struct, frozen=True):
    """Firing requested by a user. The token identifies a repeated request."""

    token: str
    scheduled_for_ms: int


class Schedule(msgspec.Struct, frozen=True):
    definition: ScheduleDefinition
    created_ms: int
    token: str = ""
    """Token of the request that created the schedule; identifies a repeated request."""
    is_paused: bool = False
    next_ms: int | None = None
    """Next time at which the schedule fires; None if there is none."""
    intent: Intent | None = None
    target: FiringTarget | None = None
    runs: tuple[RequestedRun, ...] = ()
    """Requested firings that wait to be sent, oldest first."""
    past_runs: tuple[RequestedRun, ...] = ()
    fired: int = 0
    missed: int = 0
    last_scheduled_for_ms: int | None = None

    @property
    def recurrence(self) -> Recurrence:
        return parse_recurrence(self.definition.cron, self.definition.timezone, self.created_ms)


def new_schedule(definition: ScheduleDefinition, now_ms: int, token: str = "") -> Schedule:
    """Return a schedule with its first time. Raises BrokerError if the expression or the time zone is invalid."""
    recurrence = parse_recurrence(definition.cron, definition.timezone, now_ms)
    return Schedule(definition, now_ms, token, next_ms=recurrence.after(now_ms))


# --- requests


def pause(schedule: Schedule) -> Schedule:
    """Stop firing; a firing in flight is completed."""
    return schedule if schedule.is_paused else msgspec.structs.replace(schedule, is_paused=True)


def resume(schedule: Schedule, now_ms: int) -> Schedule:
    """Fire again. Times during the pause are skipped, and do not count as missed."""
    if not schedule.is_paused:
        return schedule
    return msgspec.structs.replace(schedule, is_paused=False, next_ms=schedule.recurrence.after(now_ms))


def request_run(schedule: Schedule, token: str, now_ms: int) -> Schedule:
    """Add a firing for the current time, which is also sent while the schedule is paused. Requests with the same token
    add only one firing.

    No two firings of a schedule have the same time: a requested firing is later than earlier requested ones, and a time
    that the recurrence also has is increased by a millisecond.
    """
    if find_run(schedule, token) is not None:
        return schedule
    last_ms = max((run.scheduled_for_ms for run in (*schedule.past_runs, *schedule.runs)), default=0)
    time_ms = max(now_ms, last_ms + 1)
    if schedule.recurrence.at_or_before(time_ms) == time_ms:
        time_ms += 1  # times of the recurrence are whole seconds, so this time is free
    return msgspec.structs.replace(schedule, runs=(*schedule.runs, RequestedRun(token, time_ms)))


def find_run(schedule: Schedule, token: str) -> RequestedRun | None:
    return next((run for run in (*schedule.runs, *schedule.past_runs) if run.token == token), None)


# --- firing


def wakes_at(schedule: Schedule) -> int | None:
    """Next time at which the agent has work to do; 0 for now, None for never."""
    if schedule.intent is not None or schedule.runs:
        return 0
    return None if schedule.is_paused else schedule.next_ms


def due(schedule: Schedule, now_ms: int) -> Due | None:
    """Decide about the scheduled times that have passed; None if none has passed."""
    first_ms = schedule.next_ms
    if schedule.is_paused or first_ms is None or first_ms > now_ms:
        return None
    return passed_times(schedule.recurrence, schedule.definition.catch_up, first_ms, now_ms)


def skip(schedule: Schedule, now_ms: int) -> Schedule:
    """Skip the scheduled times that have passed, if the catch-up setting sends no message for them."""
    found = due(schedule, now_ms)
    if found is None or found.fires_ms is not None:
        return schedule
    return msgspec.structs.replace(schedule, next_ms=found.next_ms, missed=schedule.missed + found.missed)


def begin(schedule: Schedule, target: FiringTarget, from_offset: int, now_ms: int) -> Schedule:
    """Decide the next firing, with `target` as its partition and producer. Returns the same state if none is due or one
    is in flight.
    """
    if schedule.intent is not None:
        return schedule
    if schedule.runs:
        run = schedule.runs[0]
        intent = _intent(run.scheduled_for_ms, target, from_offset, now_ms, is_requested=True)
        return msgspec.structs.replace(
            schedule,
            intent=intent,
            target=_after(target),
            runs=schedule.runs[1:],
            past_runs=(*schedule.past_runs, run)[-REMEMBERED_RUNS:],
        )
    found = due(schedule, now_ms)
    if found is None or found.fires_ms is None:
        return schedule
    return msgspec.structs.replace(
        schedule,
        intent=_intent(found.fires_ms, target, from_offset, now_ms),
        target=_after(target),
        next_ms=found.next_ms,
        missed=schedule.missed + found.missed,
    )


def finish(schedule: Schedule, intent: Intent) -> Schedule:
    """Record that a firing is written."""
    if schedule.intent != intent:
        return schedule
    last_ms = schedule.last_scheduled_for_ms if intent.is_requested else intent.scheduled_for_ms
    return msgspec.structs.replace(
        schedule, intent=None, fired=schedule.fired + 1, last_scheduled_for_ms=last_ms
    )


def retarget(
    schedule: Schedule, intent: Intent, target: FiringTarget, from_offset: int, now_ms: int
) -> Schedule:
    """Give a firing that is certainly not written another producer, and possibly another partition."""
    if schedule.intent != intent:
        return schedule
    renewed = _intent(intent.scheduled_for_ms, target, from_offset, now_ms, is_requested=intent.is_requested)
    return msgspec.structs.replace(schedule, intent=renewed, target=_after(target))


def _intent(
    scheduled_for_ms: int, target: FiringTarget, from_offset: int, now_ms: int, *, is_requested: bool = False
) -> Intent:
    return Intent(
        scheduled_for_ms,
        target.topic_id,
        target.partition,
        target.producer_id,
        target.next_sequence,
        from_offset,
        now_ms,
        is_requested,
    )


def _after(target: FiringTarget) -> FiringTarget:
    return msgspec.structs.replace(target, next_sequence=(target.next_sequence + 1) & _MAX_SEQUENCE)
