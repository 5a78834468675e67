"""States of records in a share group, types of acknowledgement, and the settings of a share-partition.

The numbers are those of Kafka (KIP-932); they are in `__share_group_state` and on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.config.retry_backoff import NO_BACKOFF, RetryBackoff


class RecordState(IntEnum):
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """The dead letter of the record is not written yet."""
    ARCHIVED = 4


AVAILABLE: Final = int(RecordState.AVAILABLE)
ACQUIRED: Final = int(RecordState.ACQUIRED)
ACKNOWLEDGED: Final = int(RecordState.ACKNOWLEDGED)
ARCHIVING: Final = int(RecordState.ARCHIVING)
ARCHIVED: Final = int(RecordState.ARCHIVED)
WAITING: Final = -2
"""State in memory of a released record that becomes available at a time; stored as available, with the time."""


def is_settled(state: int) -> bool:
    """Whether a record with this state is of no further interest."""
    return state in (ACKNOWLEDGED, ARCHIVED)


class DeadReason(IntEnum):
    """Reason of a dead letter, as it is stored."""

    NONE = 0
    REJECTED = 1
    ATTEMPTS = 2
    EXPIRED = 3
    OVERFLOW = 4


class Reason(NamedTuple):
    """Reason of a dead letter, with the text of the consumer that has rejected the record."""

    code: int = 0
    text: str = ""


NO_REASON: Final = Reason()
MAX_REASON_CHARACTERS: Final = 1_000


class AcknowledgeType(IntEnum):
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    EXPIRE = 5
    """The lifetime of the record is over: rejected for this reason, and the delivery does not count. Not in KIP-932."""
    RETURN = 6
    """The record was not tried: available at once, and the delivery does not count. Not in KIP-932."""


class AcquireMode(IntEnum):
    BATCH_OPTIMIZED = 0
    """Whole record batches; the last one may exceed the limit of records."""
    RECORD_LIMIT = 1
    """One range of records, at most the limit."""


class StateBatch(NamedTuple):
    """A range of offsets with one state, as `__share_group_state` holds it."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int
    ready_ms: int = 0
    """Time from which available records may be delivered; 0 for at once. Wall-clock time where it is stored."""
    reason: Reason = NO_REASON
    """Reason of the dead letters of records that are archiving."""


class Letters(NamedTuple):
    """The producer of a share-partition's dead letters, and the batch that it writes now.

    The batch is stored before it is sent, and sent again with the same sequence until it is written, so each record
    gets one dead letter.
    """

    producer_id: int
    sequence: int
    """Sequence of the first record of the batch; without a batch, of the next one."""
    ranges: tuple[tuple[int, int], ...] = ()
    """First and last offsets of the records of the batch; empty without one."""

    @property
    def records(self) -> int:
        """Number of records of the batch."""
        return sum(last - first + 1 for first, last in self.ranges)


class StateUpdate(NamedTuple):
    """Changes of a share-partition since the update before."""

    start_offset: int
    delivery_complete_count: int
    """Number of settled records at or above the start offset."""
    batches: list[StateBatch]
    """Changed ranges at or above the start offset: sorted and disjoint."""
    letters: Letters | None = None
    """Dead letters that are being written; None leaves them as they are."""


def shift_times(batches: Sequence[StateBatch], shift_ms: int) -> list[StateBatch]:
    """The batches with their times moved from one clock to another. A time never becomes 0, which is no time."""
    return [
        each._replace(ready_ms=max(1, each.ready_ms + shift_ms)) if each.ready_ms else each
        for each in batches
    ]


class Acquired(NamedTuple):
    """Range of records that was given to a member."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """A range of a request, with one type for the whole range or one for each offset."""

    first_offset: int
    last_offset: int
    types: bytes


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Settings of a share group that a share-partition follows."""

    lock_ms: int = 30_000
    delivery_limit: int = 5
    max_locks: int = 2_000
    max_ranges: int = 20_000
    """Limit of the ranges that are kept; at the limit new records wait."""
    may_renew: bool = True
    backoff: RetryBackoff = NO_BACKOFF
    """Delay of records that are released or whose lock expires."""
    has_dead_letters: bool = False
    """Whether records that are rejected or exhaust their attempts get a dead letter."""
    max_archiving: int = 100_000
    """Limit of the records that wait for their dead letter; at the limit new records wait."""
    has_priorities: bool = False
    """Whether records of higher levels are delivered first."""
    lower_share: float = 0.0
    """Share of the deliveries that levels below the highest one get."""
    is_ordered: bool = False
    """Whether a record is delivered only when all earlier ones of its key are settled."""
