"""One member of a consumer group: its description, its assignment and its deadlines.

Only `ConsumerState` and `ConsumerGroup` change a member; `value` and `current` are the values of its records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.groups.records import (
    Assignment,
    ClassicProtocols,
    ConsumerMemberValue,
    CurrentAssignmentValue,
    MemberState,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""Member epoch in the last heartbeat of a static member that leaves temporarily. Its assignment is kept until
its session expires.
"""

NOTHING_SAID: Final = ConsumerMemberValue(None, None, "", "", frozenset(), None, -1, None, None)
NOTHING_YET: Final = CurrentAssignmentValue(JOIN_EPOCH, JOIN_EPOCH, MemberState.STABLE, {}, {})


@dataclass(slots=True)
class ConsumerMember:
    member_id: str
    value: ConsumerMemberValue
    current: CurrentAssignmentValue = NOTHING_YET
    session_deadline_ms: int | None = None
    revocation_deadline_ms: int | None = None
    """Deadline for revoking partitions, in monotonic milliseconds; None if the member has none to revoke."""
    join_deadline_ms: int | None = None
    """Monotonic deadline in milliseconds for the join of a classic member that was told to rejoin; None otherwise."""
    sync_deadline_ms: int | None = None
    """Monotonic deadline in milliseconds for the sync of a classic member that has joined; None otherwise."""

    @property
    def classic(self) -> ClassicProtocols | None:
        """Protocols of a member that uses the classic protocol; None otherwise."""
        return self.value.classic

    @property
    def epoch(self) -> int:
        return self.current.member_epoch

    @property
    def assigned(self) -> Assignment:
        return self.current.assigned

    @property
    def deadline_ms(self) -> int | None:
        """Earliest of the member's deadlines. The member is removed when it passes."""
        deadlines = (
            self.session_deadline_ms,
            self.revocation_deadline_ms,
            self.join_deadline_ms,
            self.sync_deadline_ms,
        )
        return min((each for each in deadlines if each is not None), default=None)

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.current.state is MemberState.STABLE and self.epoch == target_epoch


def said_bytes(value: ConsumerMemberValue) -> int:
    """Approximate memory of a member's description, in bytes."""
    size = sum(map(len, value.subscribed_topics)) + len(value.subscribed_regex or "")
    if value.classic is not None:
        size += sum(len(name) + len(metadata) for name, metadata in value.classic.protocols)
    return size
