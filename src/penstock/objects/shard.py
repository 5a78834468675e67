"""Shard of objects: the states in one partition of a kind's internal topic, and their agents, on the leader.

Each record holds the whole state of an object and replaces the previous record of that object. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from penstock.errors import BrokerError, ErrorCode
from penstock.objects.kind import Agent, ObjectKind
from penstock.objects.record_codec import ObjectRecord
from penstock.state_log.appender import Appender
from penstock.state_log.shard import Shard, ShardContext

S = TypeVar("S", bound=msgspec.Struct)

WRITE_TIMEOUT_MS: Final = 5_000
"""Maximum time in milliseconds that a request waits for the commit of its change."""


class ObjectShard(Shard[ObjectRecord[S]], Generic[S]):
    def __init__(
        self,
        partition: int,
        appender: Appender[ObjectRecord[S]],
        context: ShardContext,
        kind: ObjectKind[S],
    ) -> None:
        super().__init__(partition, appender, context)
        self._kind = kind
        self._states: dict[str, S] = {}
        self._agents: dict[str, Agent] = {}
        self._is_live = False

    def __len__(self) -> int:
        return len(self._states)

    @property
    def states(self) -> Mapping[str, S]:
        """Latest states by name, including changes that are not committed yet."""
        return self._states

    @property
    def agents(self) -> Collection[Agent]:
        return self._agents.values()

    # --- requests

    async def read(self, name: str) -> S:
        """Return the state of an object once it is committed; raises RESOURCE_NOT_FOUND if there is no such object."""
        self.check_open()
        state = self._existing(name)
        await self.committed()
        return state

    def agent_of(self, name: str) -> Agent | None:
        return self._agents.get(name)

    async def create(self, name: str, state: S) -> None:
        """Store a new object; raises BrokerError if the name is taken or the shard is at a limit of the kind."""
        self.check_writable()
        if name in self._states:
            raise BrokerError(
                ErrorCode.duplicate_resource,
                f"there is a {self._kind.name} {name!r} already; delete it first or choose another name",
            )
        self._check_room(state)
        await self._change(ObjectRecord(name, state))

    async def update(self, name: str, decide: Callable[[S], S]) -> S:
        """Replace the state by the result of `decide(state)`, and return the new state when it is committed."""
        self.check_writable()
        known = self._existing(name)
        state = decide(known)
        if state is known:
            await self.committed()
        else:
            await self._change(ObjectRecord(name, state))
        return state

    async def delete(self, name: str) -> None:
        self.check_writable()
        self._existing(name)
        await self._change(ObjectRecord(name, None))

    async def committed(self) -> None:
        """Wait until all changes made so far are committed."""
        self.check_open()
        await self._written([])

    def _existing(self, name: str) -> S:
        known = self._states.get(name)
        if known is None:
            raise BrokerError(ErrorCode.resource_not_found, f"there is no {self._kind.name} {name[:80]!r}")
        return known

    def _check_room(self, state: S) -> None:
        kind = self._kind
        size_bytes = sum(map(kind.size_of, self._states.values())) + kind.size_of(state)
        if len(self._states) >= kind.max_objects or size_bytes > kind.max_bytes:
            raise BrokerError(
                ErrorCode.policy_violation,
                f"{self._appender.replica.name} would have {len(self._states) + 1} objects of the kind {kind.name} "
                f"with {size_bytes} bytes; the limits are {kind.max_objects} objects and {kind.max_bytes} bytes: "
                "delete some or make them smaller",
            )

    # --- records

    def apply(self, record: ObjectRecord[S]) -> None:
        name, state = record
        if state is None:
            self._states.pop(name, None)
            agent = self._agents.pop(name, None)
            if agent is not None:
                agent.close()
            return
        is_new = name not in self._states
        self._states[name] = state
        if not self._is_live:
            return
        if is_new:
            self._start_agent(name)
        else:
            self._agents[name].on_change()

    def resume(self) -> None:
        """Start the agents of all objects, after the log has been replayed."""
        self._is_live = True
        for name in self._states:
            self._start_agent(name)

    def _start_agent(self, name: str) -> None:
        agent = self._agents[name] = self._kind.make_agent(_Handle(self, name))
        agent.start()

    async def _change(self, record: ObjectRecord[S]) -> None:
        self.apply(record)
        await self._written([record])

    def _written(self, records: list[ObjectRecord[S]]) -> asyncio.Future[None]:
        future = self.write(records)
        if not future.done():
            self._limit_wait(future, self.now_ms() + WRITE_TIMEOUT_MS)
        return future

    # --- closing

    def _on_deadline(self, name: str) -> None:
        """Ignore deadlines: this shard schedules none of its own."""

    def _on_close(self, code: ErrorCode) -> None:
        agents, self._agents = self._agents, {}
        for agent in agents.values():
            agent.close()
        self._states.clear()


class _Handle(Generic[S]):
    """Handle of an object in this shard, for its agent."""

    __slots__ = ("_shard", "name")

    def __init__(self, shard: ObjectShard[S], name: str) -> None:
        self.name = name
        self._shard = shard

    @property
    def state(self) -> S:
        self._shard.check_open()
        return self._shard.states[self.name]

    async def update(self, decide: Callable[[S], S]) -> None:
        await self._shard.update(self.name, decide)

    async def committed(self) -> None:
        await self._shard.committed()
