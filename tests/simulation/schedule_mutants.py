"""Planted bugs of schedules: each repeats a firing, loses one, or fires early."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

import msgspec
from planting import planted_in_cluster

from penstock.objects.shard import ObjectShard
from penstock.schedules import schedule
from penstock.schedules.agent import ScheduleAgent
from penstock.schedules.schedule import FiringTarget, Intent, Schedule

NEEDS = frozenset({"scheduled"})


def _all(*patches: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    """Several patches as one."""
    stack = ExitStack()
    for each in patches:
        stack.enter_context(each)
    return stack


@planted_in_cluster("fired once", needs=NEEDS)
def firings_are_repeated_with_a_new_sequence() -> AbstractContextManager[Any]:
    """Every attempt to write a firing has a producer of its own."""
    complete, finish = ScheduleAgent._complete, schedule.finish

    async def renumbered(self: ScheduleAgent, known: Schedule, intent: Intent) -> None:
        producer_id = await self._sink.producer_id()
        await complete(self, known, msgspec.structs.replace(intent, producer_id=producer_id, sequence=0))

    def finish_any(known: Schedule, intent: Intent) -> Schedule:
        return known if known.intent is None else finish(known, known.intent)

    return _all(
        patch.object(ScheduleAgent, "_complete", renumbered), patch.object(schedule, "finish", finish_any)
    )


@planted_in_cluster("fired once", needs=NEEDS)
def intents_and_producers_are_kept_in_memory() -> AbstractContextManager[Any]:
    """A firing is sent before it is stored, by a producer that a new owner does not know."""
    update = ObjectShard.update
    producers: dict[ScheduleAgent, int] = {}

    async def forget(self: ObjectShard[Schedule], name: str, decide: Callable[[Schedule], Schedule]) -> Any:
        known = self.states[name]
        decided = decide(known)
        if known.intent is None and decided.intent is not None:
            self._states[name] = decided
            return decided
        return await update(self, name, decide)

    async def own_producer(self: ScheduleAgent, known: Schedule) -> FiringTarget:
        place = self._sink.place(self._handle.name, known.definition.topic, known.definition.key)
        if self not in producers:
            producers[self] = await self._sink.producer_id()
        target = known.target
        is_own = target is not None and target.producer_id == producers[self]
        return target if target and is_own else FiringTarget(*place, producers[self])

    return _all(
        patch.object(ObjectShard, "update", forget), patch.object(ScheduleAgent, "_target", own_producer)
    )


@planted_in_cluster("fired", needs=NEEDS)
def firings_in_flight_are_dropped_by_a_new_owner() -> AbstractContextManager[Any]:
    """An owner that finds an intent takes the firing for written."""
    resume = ObjectShard.resume

    def drop(self: ObjectShard[Schedule]) -> None:
        for name, known in self._states.items():
            self._states[name] = msgspec.structs.replace(known, intent=None)
        resume(self)

    return patch.object(ObjectShard, "resume", drop)


@planted_in_cluster("early", needs=NEEDS)
def schedules_fire_half_a_second_early() -> AbstractContextManager[Any]:
    """A time counts as passed before it has come."""
    due, wakes_at = schedule.due, schedule.wakes_at

    def early(known: Schedule) -> int | None:
        time_ms = wakes_at(known)
        return None if time_ms is None else time_ms - 500

    return _all(
        patch.object(schedule, "due", lambda known, now_ms: due(known, now_ms + 500)),
        patch.object(schedule, "wakes_at", early),
    )


@planted_in_cluster("fired once", needs=NEEDS)
def next_times_are_computed_from_the_clock() -> AbstractContextManager[Any]:
    """The next time follows the clock and not the last time, so a clock that is set back repeats firings."""
    begin = schedule.begin

    def by_the_clock(known: Schedule, target: FiringTarget, from_offset: int, now_ms: int) -> Schedule:
        next_ms = known.recurrence.at_or_before(now_ms)
        if next_ms is not None and not known.is_paused and known.intent is None:
            known = msgspec.structs.replace(known, next_ms=next_ms)
        return begin(known, target, from_offset, now_ms)

    return patch.object(schedule, "begin", by_the_clock)


@planted_in_cluster("fired", needs=NEEDS)
def requested_firings_are_kept_in_memory() -> AbstractContextManager[Any]:
    """A new owner does not know the requested firings that wait."""
    update = ObjectShard.update

    async def forget(self: ObjectShard[Schedule], name: str, decide: Callable[[Schedule], Schedule]) -> Any:
        known = self.states[name]
        decided = decide(known)
        if len(decided.runs) > len(known.runs):
            self._states[name] = decided
            self._agents[name].on_change()
            return decided
        return await update(self, name, decide)

    return patch.object(ObjectShard, "update", forget)
