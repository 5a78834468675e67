"""The agent of a schedule: sends the message of the schedule at each of its times, exactly once.

A firing is stored as an intent and committed. Then its record is sent, and sent again with the same sequence number
until it is written. A partition forgets producers after `producer.id.expiration.ms`, so before an intent that is older
than half of this time is sent, its record is searched in the partition. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from penstock.clock import Clock, monotonic_ms
from penstock.errors import BrokerError, ErrorCode
from penstock.objects.kind import Handle
from penstock.observability.logs import Logger
from penstock.schedules import schedule as states
from penstock.schedules.alarm_clock import AlarmClock
from penstock.schedules.message import firing_batch
from penstock.schedules.schedule import FiringTarget, Intent, Schedule
from penstock.state_log.intents import OTHER_HISTORY, carry_out


class FiringPartition(NamedTuple):
    """Partition that the record of a firing is written to."""

    topic_id: str
    partition: int


class LookedUp(NamedTuple):
    high_watermark: int
    is_found: bool
    """True if the batch is in the partition below the high watermark."""


class FiringSink(Protocol):
    """Access of schedule agents to the topics that they write to."""

    def place(self, name: str, topic: str, key: bytes | None) -> FiringPartition:
        """Return the partition of a schedule's records: chosen by the key, or by the schedule's name if there is no
        key. Raises BrokerError if the topic does not exist.
        """

    async def producer_id(self) -> int: ...

    async def look_up(self, topic: str, partition: int, intent: Intent | None) -> LookedUp:
        """Look for the batch of an intent in its partition, and return the high watermark."""

    async def write(self, topic: str, partition: int, batch: bytearray) -> None:
        """Write a batch, and return when it is committed. After an error other than BrokerError, the batch may be
        written or not.
        """

    @property
    def expiration_ms(self) -> int:
        """Time in milliseconds after which a partition forgets a producer that has not written."""


@dataclass(slots=True)
class FiringCounts:
    fired: int = 0
    missed: int = 0


@dataclass(frozen=True, slots=True)
class ScheduleAgentContext:
    sink: FiringSink
    clock: Clock
    alarms: AlarmClock
    logger: Logger
    counts: FiringCounts


class ScheduleAgent:
    def __init__(self, handle: Handle[Schedule], context: ScheduleAgentContext) -> None:
        self.problem = ""
        """Reason why the schedule cannot fire; empty if it can."""
        self._handle = handle
        self._context = context
        self._sink = context.sink
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._looked_up: tuple[Intent, int] | None = None
        """Intent whose record was last searched in its partition, with the monotonic time of the search in
        milliseconds.
        """
        self._ring: Callable[[], None] = self.on_change

    def start(self) -> None:
        self.on_change()

    def on_change(self) -> None:
        """Start to fire if a firing is due, else set the alarm for the next one."""
        if self._task is not None or self._is_closed:
            return
        wakes_ms = states.wakes_at(self._handle.state)
        if wakes_ms is not None and wakes_ms <= self._context.clock.now_ms():
            self._context.alarms.set(self._ring, None)
            self._task = asyncio.get_running_loop().create_task(self._run())
        else:
            self._context.alarms.set(self._ring, wakes_ms)

    def close(self) -> None:
        self._is_closed = True
        self._context.alarms.set(self._ring, None)
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await carry_out(self._step, self._resolve)
            self.problem = ""
        except Exception as error:  # noqa: BLE001 - other schedules continue
            self.problem = str(error)
            self._context.logger.error("schedule stopped", error, schedule=self._handle.name)
            return
        finally:
            self._task = None
        self.on_change()

    async def _step(self) -> bool:
        """Complete the firing in flight, or begin the next one. Returns False if nothing is due."""
        # A firing must be committed before it is sent: the next leader does not know an uncommitted firing.
        await self._handle.committed()
        schedule, now_ms = self._handle.state, self._context.clock.now_ms()
        if schedule.intent is not None:
            await self._complete(schedule, schedule.intent)
            return True
        if not schedule.runs:
            due = states.due(schedule, now_ms)
            if due is None:
                return False
            if due.fires_ms is None:
                await self._update(lambda each: states.skip(each, self._context.clock.now_ms()))
                return True
        target = await self._target(schedule)
        looked_up = await self._sink.look_up(schedule.definition.topic, target.partition, None)
        await self._update(
            lambda each: states.begin(each, target, looked_up.high_watermark, self._context.clock.now_ms())
        )
        return True

    async def _complete(self, schedule: Schedule, intent: Intent) -> None:
        name, definition = self._handle.name, schedule.definition
        place = self._sink.place(name, definition.topic, definition.key)
        if place.topic_id != intent.topic_id:
            # The topic was deleted, and the record with it if it was written.
            await self._retarget(schedule, intent)
            return
        if not (self._must_look_up(intent) and await self._is_written(schedule, intent)):
            batch = firing_batch(name, definition, intent, self._context.clock.now_ms())
            await self._sink.write(definition.topic, intent.partition, batch)
        await self._finish(intent)

    async def _finish(self, intent: Intent) -> None:
        self.problem = ""
        await self._update(partial(states.finish, intent=intent))
        self._context.counts.fired += 1

    async def _update(self, decide: Callable[[Schedule], Schedule]) -> None:
        missed = self._handle.state.missed
        await self._handle.update(decide)
        self._context.counts.missed += self._handle.state.missed - missed

    # --- partition of a firing

    async def _target(self, schedule: Schedule) -> FiringTarget:
        """Partition and producer of the next firing. The producer is kept as long as the partition stays the same."""
        definition, known = schedule.definition, schedule.target
        place = self._sink.place(self._handle.name, definition.topic, definition.key)
        if known is not None and (known.topic_id, known.partition) == place:
            return known
        return FiringTarget(place.topic_id, place.partition, await self._sink.producer_id())

    async def _retarget(self, schedule: Schedule, intent: Intent) -> None:
        definition = schedule.definition
        place = self._sink.place(self._handle.name, definition.topic, definition.key)
        target = FiringTarget(place.topic_id, place.partition, await self._sink.producer_id())
        looked_up = await self._sink.look_up(definition.topic, target.partition, None)
        await self._update(
            partial(
                states.retarget,
                intent=intent,
                target=target,
                from_offset=looked_up.high_watermark,
                now_ms=self._context.clock.now_ms(),
            )
        )

    def _must_look_up(self, intent: Intent) -> bool:
        """Return True if the partition may have forgotten the producer since the record was first sent."""
        clock, known = self._context.clock, self._looked_up
        if known is not None and known[0] == intent:
            age_ms = monotonic_ms(clock) - known[1]
        else:
            age_ms = clock.now_ms() - intent.decided_ms
        return not 0 <= age_ms < self._sink.expiration_ms // 2

    async def _is_written(self, schedule: Schedule, intent: Intent) -> bool:
        found = await self._sink.look_up(schedule.definition.topic, intent.partition, intent)
        self._looked_up = (intent, monotonic_ms(self._context.clock))
        return found.is_found

    # --- errors

    async def _resolve(self, error: Exception) -> bool:
        """Try to change the firing after an error so that it can be written. Returns False if this is not
        possible now.
        """
        try:
            if isinstance(error, BrokerError) and await self._renew(error):
                return True
        except (BrokerError, OSError, TimeoutError) as another:
            error = another
        if not self.problem:
            self._context.logger.warning("schedule cannot fire", schedule=self._handle.name, error=str(error))
        self.problem = str(error) or type(error).__name__
        return False

    async def _renew(self, error: BrokerError) -> bool:
        """Give the firing another producer, or another partition, if its partition refuses the producer or is being
        removed.
        """
        if self._is_closed:
            return False
        schedule = self._handle.state
        intent, definition = schedule.intent, schedule.definition
        if intent is None:
            return False
        if error.code is ErrorCode.unknown_topic_or_partition:
            place = self._sink.place(self._handle.name, definition.topic, definition.key)
            if place.partition == intent.partition:
                return False
        elif error.code not in OTHER_HISTORY:
            return False
        if await self._is_written(schedule, intent):
            await self._finish(intent)
        else:
            await self._retarget(schedule, intent)
        return True
