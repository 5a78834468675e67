"""A member of a consumer group, of the new protocol (KIP-848), that reads one topic for a push stream.

It reports by heartbeat what it owns, and comes to own what the coordinator says: what it loses is given up before it
says so, what it gains is read from where the group is. So there is one reader of a partition at a time, and its
offsets are those of any Kafka consumer. Loop thread only.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.group_membership import (
    Assignment,
    GroupMembership,
    MemberIdentity,
    Subscription,
)
from penstock.internal_client.retries import MAX_RETRY_SECONDS, RETRIABLE
from penstock.internal_client.routes import Routes, TopicRoute

_JOINS, _LEAVES = 0, -1
_REBALANCE_TIMEOUT_MS = 60_000
_LEAVE_SECONDS = 5.0
_NOTHING: frozenset[int] = frozenset()

_FENCED = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch})
"""The group goes on without this member; it may join again, with nothing."""


class AssignmentListener(Protocol):
    """Whoever reads what the member owns."""

    async def begin(self, partitions: frozenset[int]) -> Mapping[int, int]:
        """Where to read those of which the group has no offset."""
        ...

    def take(self, positions: Mapping[int, int]) -> None:
        """Read these too, from here on."""
        ...

    async def give_up(self, partitions: frozenset[int]) -> None:
        """Read these no more; the last moment to commit how far they were read. Whoever is next reads again what is
        not committed, so that may fail."""
        ...

    def lose(self) -> None:
        """Read nothing any more: others may do so already, and nothing can be committed."""
        ...


class GroupMember:
    def __init__(
        self, routes: Routes, group: str, topic: TopicRoute, member_id: str, reader: AssignmentListener
    ) -> None:
        self.owned: frozenset[int] = _NOTHING
        self._coordinator = GroupMembership(routes)
        self._group, self._topic, self._id = group, topic, member_id
        self._reader = reader
        self._epoch = _JOINS
        self._target: Assignment = {}
        self._reported: Assignment | None = None
        self._is_certain = False
        """Whether the coordinator knows what was last said; else everything is said again."""
        self._interval_seconds = MAX_RETRY_SECONDS
        # An epoch changes by a heartbeat alone: while one is away no commit is, so none comes in a wrong epoch.
        self._speaking = asyncio.Lock()
        self._is_due = asyncio.Event()

    async def join(self) -> None:
        """BrokerError where the group does not take it, OSError where nobody answers."""
        await self._beat()

    async def run(self) -> None:
        """Stay a member, until this is cancelled; BrokerError where the group does not want it any more."""
        while True:
            is_wanting = False
            try:
                if await self._reconcile():
                    self.hurry()
            except (BrokerError, OSError):
                is_wanting = True
            # One with nothing to do asks often whether there is something by now.
            often = is_wanting or not self.owned
            pause_seconds = min(self._interval_seconds, MAX_RETRY_SECONDS if often else math.inf)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_seconds):
                    await self._is_due.wait()
            try:
                await self._beat()
            except BrokerError as error:
                if error.code in _FENCED:
                    self._lose_all()
                    self._epoch, self._target = _JOINS, {}
                    self.hurry()
                elif error.code not in RETRIABLE:
                    raise
            except OSError:
                self.hurry()

    def hurry(self) -> None:
        """Report now: something has changed, or seems to have."""
        self._is_due.set()

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """Of what it still owns; BrokerError or OSError where it cannot be."""
        async with self._speaking:
            mine = {partition: offset for partition, offset in offsets.items() if partition in self.owned}
            if mine:
                try:
                    await self._coordinator.commit(self._member(), self._topic.id, mine)
                except (BrokerError, OSError):
                    self.hurry()
                    raise

    async def leave(self) -> None:
        """So that others take over at once; where it cannot be said, they do when the session is over."""
        with suppress(BrokerError, OSError):
            async with asyncio.timeout(_LEAVE_SECONDS), self._speaking:
                await self._coordinator.heartbeat(MemberIdentity(self._group, self._id, _LEAVES), None, None)
        self._epoch, self.owned = _JOINS, _NOTHING

    def _member(self) -> MemberIdentity:
        return MemberIdentity(self._group, self._id, self._epoch)

    async def _beat(self) -> None:
        self._is_due.clear()
        introduction = None if self._is_certain else Subscription(_REBALANCE_TIMEOUT_MS, [self._topic.name])
        async with self._speaking:
            owned = self._owned_by_topic()
            says_owned = introduction is not None or owned != self._reported
            self._is_certain = False
            answer = await self._coordinator.heartbeat(
                self._member(), introduction, owned if says_owned else None
            )
            self._is_certain, self._reported = True, owned
            self._epoch = answer.member_epoch
        self._interval_seconds = answer.interval_seconds
        if answer.assignment is not None:
            self._target = answer.assignment

    async def _reconcile(self) -> bool:
        """Come to own what it should; whether that changed anything."""
        wanted = self._target.get(self._topic.id, _NOTHING)
        surplus, missing = self.owned - wanted, wanted - self.owned
        if surplus:
            with suppress(BrokerError, OSError):
                await self._reader.give_up(surplus)
            self.owned -= surplus
        if missing:
            positions = await self._coordinator.committed(self._member(), self._topic.id, sorted(missing))
            unread = missing - positions.keys()
            if unread:
                positions |= await self._reader.begin(unread)
            self.owned |= missing
            self._reader.take(positions)
        return bool(surplus or missing)

    def _lose_all(self) -> None:
        self.owned = _NOTHING
        self._reader.lose()

    def _owned_by_topic(self) -> Assignment:
        return {self._topic.id: self.owned} if self.owned else {}
