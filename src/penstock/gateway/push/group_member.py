"""A member of a consumer group (KIP-848) that reads one topic for a push stream.

Its heartbeats report the partitions that it owns, and the responses assign partitions. A revoked partition is
given up before the member reports this; an assigned partition is read from the committed offset. Each partition
has one reader at a time, and committed offsets are the same as for Kafka consumers. Loop thread only.
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
    HeartbeatSubscription,
    MemberIdentity,
)
from penstock.internal_client.retries import MAX_RETRY_SECONDS, RETRIABLE
from penstock.internal_client.routes import Routes
from penstock.internal_client.topic_routes import TopicRoute

_JOINS, _LEAVES = 0, -1
_REBALANCE_TIMEOUT_MS = 60_000
_LEAVE_SECONDS = 5.0
_NOTHING: frozenset[int] = frozenset()

_FENCED = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch})
"""Errors that mean that the group has removed this member. The member may join again, without partitions."""


class AssignmentListener(Protocol):
    """The stream that reads the partitions of the member."""

    async def start_offsets(self, partitions: frozenset[int]) -> Mapping[int, int]:
        """Return the start offsets of partitions without a committed offset."""
        ...

    def on_assigned(self, positions: Mapping[int, int]) -> None:
        """Begin to read these partitions, each from its offset on."""
        ...

    async def on_revoked(self, partitions: frozenset[int]) -> None:
        """Stop reading these partitions, and commit their offsets. If the commit fails, the next owner reads again
        from the last committed offset.
        """
        ...

    def on_lost(self) -> None:
        """Stop reading all partitions, without a commit: other members may own them already."""
        ...


class StreamMember:
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
        """True if the coordinator has received the last heartbeat. If not, the next heartbeat has all fields."""
        self._interval_seconds = MAX_RETRY_SECONDS
        # Heartbeats change the member epoch. The lock keeps commits from being sent while a heartbeat is in
        # flight, so that no commit has a stale epoch.
        self._speaking = asyncio.Lock()
        self._is_due = asyncio.Event()

    async def join(self) -> None:
        """Join the group. Raises BrokerError if the group refuses the member, OSError if no coordinator responds."""
        await self._beat()

    async def run(self) -> None:
        """Remain a member until this task is cancelled. Raises BrokerError if the group refuses the member."""
        while True:
            is_wanting = False
            try:
                if await self._reconcile():
                    self.heartbeat_soon()
            except (BrokerError, OSError):
                is_wanting = True
            # A member without partitions sends heartbeats more often, to get an assignment soon.
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
                    self.heartbeat_soon()
                elif error.code not in RETRIABLE:
                    raise
            except OSError:
                self.heartbeat_soon()

    def heartbeat_soon(self) -> None:
        """Send the next heartbeat at once instead of after the interval, because something may have changed."""
        self._is_due.set()

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit the offsets of those partitions that the member still owns. Raises BrokerError or OSError if the
        commit fails.
        """
        async with self._speaking:
            mine = {partition: offset for partition, offset in offsets.items() if partition in self.owned}
            if mine:
                try:
                    await self._coordinator.commit(self._member(), self._topic.id, mine)
                except (BrokerError, OSError):
                    self.heartbeat_soon()
                    raise

    async def leave(self) -> None:
        """Leave the group, so that other members take over at once. If no coordinator responds, they take over
        when the session expires.
        """
        with suppress(BrokerError, OSError):
            async with asyncio.timeout(_LEAVE_SECONDS), self._speaking:
                await self._coordinator.heartbeat(MemberIdentity(self._group, self._id, _LEAVES), None, None)
        self._epoch, self.owned = _JOINS, _NOTHING

    def _member(self) -> MemberIdentity:
        return MemberIdentity(self._group, self._id, self._epoch)

    async def _beat(self) -> None:
        self._is_due.clear()
        introduction = (
            None if self._is_certain else HeartbeatSubscription(_REBALANCE_TIMEOUT_MS, [self._topic.name])
        )
        async with self._speaking:
            owned = self._owned_by_topic()
            says_owned = introduction is not None or owned != self._reported
            self._is_certain = False
            response = await self._coordinator.heartbeat(
                self._member(), introduction, owned if says_owned else None
            )
            self._is_certain, self._reported = True, owned
            self._epoch = response.member_epoch
        self._interval_seconds = response.interval_seconds
        if response.assignment is not None:
            self._target = response.assignment

    async def _reconcile(self) -> bool:
        """Give up revoked partitions and take assigned ones; return True if there were any."""
        wanted = self._target.get(self._topic.id, _NOTHING)
        surplus, missing = self.owned - wanted, wanted - self.owned
        if surplus:
            with suppress(BrokerError, OSError):
                await self._reader.on_revoked(surplus)
            self.owned -= surplus
        if missing:
            positions = await self._coordinator.committed(self._member(), self._topic.id, sorted(missing))
            unread = missing - positions.keys()
            if unread:
                positions |= await self._reader.start_offsets(unread)
            self.owned |= missing
            self._reader.on_assigned(positions)
        return bool(surplus or missing)

    def _lose_all(self) -> None:
        self.owned = _NOTHING
        self._reader.on_lost()

    def _owned_by_topic(self) -> Assignment:
        return {self._topic.id: self.owned} if self.owned else {}
