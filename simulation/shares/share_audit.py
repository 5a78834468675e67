"""The audit of simulated share groups in peace: every record is delivered in time, every waiting member served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from penstock.errors import BrokerError
from penstock.queues.states import AcknowledgeType
from simulation.clients.client import NoAnswer
from simulation.clients.retries import retried
from simulation.clients.routing_client import RoutingClient
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import Place
from simulation.scenarios.stage import Stage
from simulation.shares.dead_letter_topic import DeadLetterTopic
from simulation.shares.share_admin import LOCK_DURATIONS_MS
from simulation.shares.share_group import ShareGroup
from simulation.shares.share_member import ShareMember
from simulation.shares.share_requests import Limits
from simulation.shares.share_topic import ShareWriter
from simulation.transactions.transaction_reader import Shown, read_shown

_LOCK_MS = 300
_LIMIT = 10
_BACK_OFF_MS = 200
_SOON_SECONDS = 1.0
_DRAIN_SECONDS = 60.0
_MAX_BYTES = 1_000_000
_WAITERS = 3
_BEGIN_SECONDS = 0.1
"""Seconds until a fetch waits at the broker."""


class ShareAudit:
    def __init__(
        self,
        stage: Stage,
        group: ShareGroup,
        writer: ShareWriter,
        routing: RoutingClient,
        letters: DeadLetterTopic | None = None,
    ) -> None:
        self._stage = stage
        self._group = group
        self._writer = writer
        self._routing = routing
        self._letters = letters
        self._members = [ShareMember(stage, group, 90 + number) for number in range(_WAITERS)]

    async def run(self) -> None:
        group = self._group
        group.is_leaving = False
        settings = {
            "record_lock_duration_ms": _LOCK_MS,
            "delivery_count_limit": _LIMIT,
            "partition_max_record_locks": 1_000,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed" if group.model.is_committed else "read_uncommitted",
        }
        if self._letters is not None:
            settings["retry_backoff_ms"] = _BACK_OFF_MS
        await retried(partial(group.configure, self._routing, **settings), "the group is not configured")
        group.is_configured = True
        for member in self._members:
            await retried(member.join, f"{member.name} cannot join")
        # Locks of members that went without a word last until then.
        await asyncio.sleep(max(LOCK_DURATIONS_MS) / 1000 + _SOON_SECONDS)
        for place in group.topic.places:
            await self._drain(place)
            await self._check_waiting(place)
            await self._check_fairness(place)

    # --- nothing is lost

    async def _drain(self, place: Place) -> None:
        """Accept everything; then every record is settled."""
        loop = self._stage.world.loop
        deadline_s, left, member = loop.time() + _DRAIN_SECONDS, [-1], self._members[0]
        while left:
            if loop.time() > deadline_s:
                raise InvariantViolated("Q1", f"{self._group.model.group} {place}: {left} are not delivered")
            taken = await self._tried(member, place, max_wait_ms=500)
            for each, offsets in taken.items():
                await self._accept(member, each, offsets)
            left = left if taken else await self._unsettled(place)

    async def _unsettled(self, place: Place) -> list[int]:
        """Records that the group has neither settled nor passed over."""
        shown = await retried(partial(self._read, place), f"{place} cannot be read")
        model = self._group.model
        deleted_before = self._group.topic.deleted_before.get(place, 0)
        return [
            offset for offset, _ in shown if offset >= deleted_before and not model.is_done(place, offset)
        ]

    async def _read(self, place: Place) -> list[Shown]:
        _, shown = await read_shown(self._routing, place, is_committed=self._group.model.is_committed)
        return shown

    async def _tried(self, member: ShareMember, place: Place, max_wait_ms: int) -> dict[Place, list[int]]:
        limits = Limits(max_wait_ms, _MAX_BYTES, 500)
        try:
            return await member.fetch(place, limits)
        except (BrokerError, NoAnswer) as error:
            self._stage.note(member.name, "audit", type(error).__name__, error)
            await asyncio.sleep(0.1)
            return {}

    async def _accept(self, member: ShareMember, place: Place, offsets: Sequence[int]) -> None:
        try:
            await member.acknowledge(place, dict.fromkeys(offsets, AcknowledgeType.ACCEPT))
        except (BrokerError, NoAnswer) as error:
            self._stage.note(member.name, "audit", type(error).__name__, error)

    # --- a free record reaches a waiting member

    async def _check_waiting(self, place: Place) -> None:
        """A new record, one whose lock expires and one that is released are delivered in time."""
        first, second, _ = self._members
        [offset] = await self._delivered(first, place, partial(self._write, place), "a new record")
        await self._delivered(second, place, partial(self._let_expire, offset), "an expired lock")
        release = partial(self._release, second, place, offset)
        await self._delivered(first, place, release, "a released record")
        await self._accept(first, place, [offset])

    async def _delivered(
        self, member: ShareMember, place: Place, act: Callable[[], Awaitable[list[int]]], what: str
    ) -> list[int]:
        """Let a member wait, act, and expect the records of the act within a second."""
        waiting = asyncio.ensure_future(self._wait(member, place))
        await asyncio.sleep(_BEGIN_SECONDS)
        offsets = await act()
        if not await self._gets(member, place, offsets):
            waiting.cancel()
            raise InvariantViolated("Q7", f"{member.id} {place}: {what}, {offsets}, is not delivered")
        await waiting
        return offsets

    async def _gets(self, member: ShareMember, place: Place, offsets: list[int]) -> bool:
        deadline_s = self._stage.world.loop.time() + _SOON_SECONDS
        while not set(offsets) <= set(member.held.get(place, ())):
            if self._stage.world.loop.time() > deadline_s:
                return False
            await asyncio.sleep(0.01)
        return True

    async def _wait(self, member: ShareMember, place: Place) -> list[int]:
        """Fetch with a long poll until there are records of the partition."""
        member.held.clear()
        while True:
            taken = await self._tried(member, place, max_wait_ms=5_000)
            if place in taken:
                return taken[place]

    async def _write(self, place: Place) -> list[int]:
        return await retried(partial(self._writer.write, place, 1), f"{place} cannot be written")

    async def _let_expire(self, offset: int) -> list[int]:
        await asyncio.sleep(_LOCK_MS / 1000)
        return [offset]

    async def _release(self, member: ShareMember, place: Place, offset: int) -> list[int]:
        await member.acknowledge(place, {offset: AcknowledgeType.RELEASE})
        return [offset]

    async def _check_fairness(self, place: Place) -> None:
        """Records that are written one by one reach all members that wait, not one of them again and again."""
        waiting = {member: asyncio.ensure_future(self._wait(member, place)) for member in self._members}
        await asyncio.sleep(_BEGIN_SECONDS)
        for number in range(len(self._members)):
            await self._write(place)
            await asyncio.sleep(0.1)
            served = sum(task.done() for task in waiting.values())
            if served != number + 1:
                for task in waiting.values():
                    task.cancel()
                raise InvariantViolated("Q7", f"{place}: {served} of {number + 1} records have arrived")
        for member, task in waiting.items():
            await self._accept(member, place, await task)
