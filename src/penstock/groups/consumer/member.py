"""One member of a consumer group: what it said, what it has, and until when it must be heard from.

Changed by `ConsumerState` and `ConsumerGroup` alone; `value` and `current` are what its records say.
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
"""The member goes and means to come back: what it has is kept for it until its session ends."""

NOTHING_SAID: Final = ConsumerMemberValue(None, None, "", "", frozenset(), None, -1, None, None)
NOTHING_YET: Final = CurrentAssignmentValue(JOIN_EPOCH, JOIN_EPOCH, MemberState.STABLE, {}, {})


@dataclass(slots=True)
class ConsumerMember:
    member_id: str
    value: ConsumerMemberValue
    current: CurrentAssignmentValue = NOTHING_YET
    session_deadline_ms: int | None = None
    revocation_deadline_ms: int | None = None
    """While it has partitions to give up."""
    join_deadline_ms: int | None = None
    """Of a classic member that was told to join again."""
    sync_deadline_ms: int | None = None
    """Of a classic member that joined and has not asked for its assignment yet."""

    @property
    def classic(self) -> ClassicProtocols | None:
        """What it joined with, if it speaks the classic protocol."""
        return self.value.classic

    @property
    def epoch(self) -> int:
        return self.current.member_epoch

    @property
    def assigned(self) -> Assignment:
        return self.current.assigned

    @property
    def deadline_ms(self) -> int | None:
        """The first of its deadlines: when it comes, the member is out."""
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
    """About how much memory its words take."""
    size = sum(map(len, value.subscribed_topics)) + len(value.subscribed_regex or "")
    if value.classic is not None:
        size += sum(len(name) + len(metadata) for name, metadata in value.classic.protocols)
    return size
