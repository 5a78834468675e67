"""A member of a classic group on a raw connection, hundreds per process: joins, heartbeats, fetches, commits."""

from __future__ import annotations

import asyncio
import time

from bench.group_frames import (
    MEMBER_ID_REQUIRED,
    NOT_YET,
    REBALANCE_IN_PROGRESS,
    commit_request,
    find_coordinator_request,
    heartbeat_request,
    join_request,
    read_commit,
    read_error,
    read_join,
    read_sync,
    sync_request,
)
from bench.raw_client import RawConnection

PATIENCE_S = 60.0
REBALANCE_MS = 60_000
RETRY_S = 0.02


class GroupMember(RawConnection):
    """Member that fetches from one of its partitions after every rebalance; from then on it reads."""

    def __init__(self, group: str, topic: str, partitions: int, session_ms: int) -> None:
        super().__init__()
        self.group = group
        self.topic = topic
        self.session_ms = session_ms
        self.member_id = ""
        self.generation = -1
        self.group_size = 0
        """Number of members, as the leader knows it."""
        self.owned: tuple[int, ...] = ()
        self.reading_in = -1
        """Generation in which all partitions of the member had their first fetch response."""
        self.reading_since = 0.0
        self._partitions = partitions

    async def find_coordinator(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while error := read_error(await self.ask(find_coordinator_request(self.next_id(), self.group))):
            if error not in NOT_YET or time.monotonic() > deadline:
                raise RuntimeError(f"FindCoordinator was answered with error {error}")
            await asyncio.sleep(RETRY_S)

    async def join(self) -> None:
        """Join, through as many rebalances as needed, until this member reads."""
        while not await self._join_once():
            pass

    async def heartbeat(self) -> int:
        request = heartbeat_request(self.next_id(), self.group, self.generation, self.member_id)
        return read_error(await self.ask(request))

    async def commit(self, partition: int, offset: int) -> None:
        request = commit_request(
            self.next_id(), self.group, self.generation, self.member_id, self.topic, partition, offset
        )
        if error := read_commit(await self.ask(request)):
            raise RuntimeError(f"OffsetCommit was answered with error {error}")

    async def stay(self, interval_s: float, first_after_s: float) -> None:
        """Send heartbeats, and join again at each rebalance."""
        await asyncio.sleep(first_after_s)
        while True:
            error = await self.heartbeat()
            if error == REBALANCE_IN_PROGRESS:
                await self.join()
            elif error:
                raise RuntimeError(f"Heartbeat was answered with error {error}")
            await asyncio.sleep(interval_s)

    async def _join_once(self) -> bool:
        request = join_request(
            self.next_id(), self.group, self.member_id, self.topic, self.session_ms, REBALANCE_MS
        )
        joined = read_join(await self.ask(request))
        if joined.error_code == MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return False
        if joined.error_code:
            if joined.error_code not in NOT_YET:
                raise RuntimeError(f"JoinGroup was answered with error {joined.error_code}")
            await asyncio.sleep(RETRY_S)
            return False
        self.member_id, self.generation = joined.member_id, joined.generation
        self.group_size = len(joined.members)
        shares = self._shares(joined.members) if joined.leader == joined.member_id else {}
        synced = read_sync(
            await self.ask(
                sync_request(self.next_id(), self.group, self.generation, self.member_id, self.topic, shares)
            )
        )
        if synced.error_code:
            if synced.error_code != REBALANCE_IN_PROGRESS:
                raise RuntimeError(f"SyncGroup was answered with error {synced.error_code}")
            return False
        self.owned = synced.partitions
        for partition in self.owned:
            answer = await self.fetch(self.topic, partition, 0, 0)
            if answer.error_code:
                raise RuntimeError(f"Fetch was answered with error {answer.error_code}")
        self.reading_since = time.perf_counter()
        self.reading_in = self.generation
        return True

    def _shares(self, members: tuple[str, ...]) -> dict[str, range]:
        return {
            member: range(number, self._partitions, len(members)) for number, member in enumerate(members)
        }


def all_read(members: list[GroupMember]) -> bool:
    """Whether all members are in one generation, know the same members, and read."""
    generation = members[0].reading_in
    return (
        generation >= 0
        and all(member.reading_in == member.generation == generation for member in members)
        and max(member.group_size for member in members) == len(members)
    )
