"""A driver of one classic group: a manual clock, a ticket for every request, and all responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from penstock.cluster.image import ClusterImage
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.group import (
    GroupState,
    GroupStep,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from penstock.groups.records import ClassicGroupKey, ClassicGroupValue, GroupRecord
from penstock.groups.settings import GroupSettings

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
WALL_OFFSET_MS = 1_700_000_000_000

Protocols = tuple[tuple[str, bytes], ...]
RANGE: Protocols = (("range", b"meta"),)


@dataclass(frozen=True)
class Ticket:
    number: int


def settings(**options: int) -> GroupSettings:
    named = {"group_initial_rebalance_delay_ms": DELAY_MS, **options}
    return GroupSettings(
        BrokerConfig({name.replace("_", "."): str(value) for name, value in named.items()}), {}
    )


class Driver:
    def __init__(self, **options: int) -> None:
        self.now_ms = 1_000
        self.settings = settings(**options)
        self.group = ClassicGroup("g", self.settings, self.wall_ms)
        self.answers: dict[Ticket, Any] = {}
        self.records: list[ClassicGroupValue] = []
        self._tickets = count()
        self._ids = count(1)

    def wall_ms(self) -> int:
        return WALL_OFFSET_MS + self.now_ms

    @property
    def state(self) -> GroupState:
        return self.group.state

    def take(self, step: GroupStep) -> None:
        for record in step.records:
            assert record.key == ClassicGroupKey("g")
            assert isinstance(record.value, ClassicGroupValue)
            self.records.append(record.value)
        for ticket, answer in step.answers:
            assert isinstance(ticket, Ticket)
            assert ticket not in self.answers, "answered twice"
            self.answers[ticket] = answer

    def ask_join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        two_step: bool = False,
        skips: bool = True,
        client_id: str = "client",
    ) -> Ticket:
        ticket = Ticket(next(self._tickets))
        request = JoinRequest(
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host="/127.0.0.1",
            protocol_type=protocol_type,
            protocols=protocols,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            new_member_id=f"{instance_id or client_id}-{next(self._ids)}",
            requires_known_member_id=two_step,
            supports_skipping_assignment=skips,
        )
        self.take(self.group.join(request, ticket, self.now_ms))
        return ticket

    def join(self, member_id: str = "", **options: Any) -> JoinResult:
        """A join that gets its response at once."""
        return self.joined(self.ask_join(member_id, **options))

    def joined(self, ticket: Ticket) -> JoinResult:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinResult)
        return answer

    def waits(self, ticket: Ticket) -> bool:
        return ticket not in self.answers

    def ask_sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Ticket:
        ticket = Ticket(next(self._tickets))
        request = SyncRequest(
            member_id, instance_id, generation, protocol_type, protocol_name, assignments or {}
        )
        self.take(self.group.sync(request, ticket, self.now_ms))
        return ticket

    def sync(self, member_id: str, generation: int, *args: Any, **options: Any) -> SyncResult:
        return self.synced(self.ask_sync(member_id, generation, *args, **options))

    def synced(self, ticket: Ticket) -> SyncResult:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncResult)
        return answer

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        return self.group.heartbeat(member_id, instance_id, generation, self.now_ms)

    def leave(self, *members: tuple[str, str | None]) -> tuple[ErrorCode, ...]:
        ticket = Ticket(next(self._tickets))
        leaving: Sequence[LeavingMember] = [LeavingMember(*member) for member in members]
        self.take(self.group.leave(leaving, ticket, self.now_ms))
        answer = self.answers[ticket]
        assert isinstance(answer, LeaveResult)
        return answer.errors

    def commit(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        try:
            self.group.check_commit(member_id, instance_id, generation, self.now_ms)
        except BrokerError as error:
            return error.code
        return ErrorCode.none

    def advance(self, by_ms: int) -> None:
        """Advance the clock as a shard does: a tick at every deadline, and none without one."""
        end_ms = self.now_ms + by_ms
        while (due_ms := self.group.next_deadline_ms) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.group.tick(self.now_ms))
        self.now_ms = end_ms

    def restart(self) -> None:
        """Restore the group from its last record, as another coordinator does; sessions and tickets are gone."""
        self.group = ClassicGroup("g", self.settings, self.wall_ms)
        self.group.apply(GroupRecord(ClassicGroupKey("g"), self.records[-1]))
        self.group.loaded(ClusterImage(""), self.now_ms)

    def stable(self, members: int = 1, **options: Any) -> list[str]:
        """Members after one generation; the first is the leader, and each has its member id as assignment."""
        tickets = [self.ask_join(**options) for _ in range(members)]
        return self.settle(tickets)

    def stable_static(self, *instance_ids: str, **options: Any) -> list[str]:
        return self.settle(
            [self.ask_join(instance_id=instance_id, **options) for instance_id in instance_ids]
        )

    def settle(self, tickets: Sequence[Ticket]) -> list[str]:
        while any(self.waits(ticket) for ticket in tickets):
            self.advance(DELAY_MS)
        results = [self.joined(ticket) for ticket in tickets]
        assert {result.error for result in results} == {ErrorCode.none}
        leader = next(result for result in results if result.member_id == result.leader)
        assignments = {member_id: member_id.encode() for member_id, _, _ in leader.members}
        for result in results:
            self.ask_sync(result.member_id, result.generation, assignments if result is leader else {})
        assert self.state is GroupState.STABLE
        return [result.member_id for result in results]
