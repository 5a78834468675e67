"""Deadlines of the members of a consumer group. Used by `ConsumerGroup` and its parts alone.

The earliest of a member's deadlines counts: the member is removed when it passes.
"""

from __future__ import annotations

from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.deadlines import Deadlines
from penstock.groups.records import CurrentAssignmentValue, MemberState
from penstock.groups.settings import GroupSettings


class MemberTimers:
    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self._group_id = group_id
        self._settings = settings
        self._deadlines = Deadlines()

    @property
    def next_ms(self) -> int | None:
        return self._deadlines.next_ms

    def pop(self, now_ms: int) -> str | None:
        """Remove and return the id of a member whose deadline has passed; None if there is none."""
        return self._deadlines.pop(now_ms)

    def forget(self, member: ConsumerMember) -> None:
        self._deadlines.discard(member.member_id)

    def heard_from(self, member: ConsumerMember, now_ms: int) -> None:
        if member.classic is None:
            session_ms = self._settings.consumer_session_timeout_ms(self._group_id)
        else:
            session_ms = member.classic.session_timeout_ms
        member.session_deadline_ms = now_ms + session_ms
        self._moved(member)

    def reconciled(self, member: ConsumerMember, before: CurrentAssignmentValue | None, now_ms: int) -> None:
        """Start the rebalance timeout if the member has got new partitions to revoke. Stop it if it has none
        to revoke.
        """
        if member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            member.revocation_deadline_ms = None
        elif member.current is not before:
            member.revocation_deadline_ms = now_ms + member.value.rebalance_timeout_ms
        self._moved(member)

    def told_to_join(self, member: ConsumerMember, now_ms: int) -> None:
        if member.join_deadline_ms is None:
            member.join_deadline_ms = now_ms + member.value.rebalance_timeout_ms
            self._moved(member)

    def joined(self, member: ConsumerMember, now_ms: int) -> None:
        member.join_deadline_ms = None
        member.sync_deadline_ms = now_ms + member.value.rebalance_timeout_ms
        self._moved(member)

    def synced(self, member: ConsumerMember) -> None:
        member.sync_deadline_ms = None
        self._moved(member)

    def speaks_new_protocol(self, member: ConsumerMember) -> None:
        """Stop the join and sync deadlines of a member that changed to the consumer protocol."""
        member.join_deadline_ms = member.sync_deadline_ms = None
        self._moved(member)

    def left_for_now(self, member: ConsumerMember) -> None:
        """Keep only the session deadline, for a static member that may return until its session expires."""
        member.revocation_deadline_ms = member.join_deadline_ms = member.sync_deadline_ms = None
        self._moved(member)

    def _moved(self, member: ConsumerMember) -> None:
        deadline_ms = member.deadline_ms
        if deadline_ms is None:
            self._deadlines.discard(member.member_id)
        else:
            self._deadlines.set(member.member_id, deadline_ms)
