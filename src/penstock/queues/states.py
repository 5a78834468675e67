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
"""State in memory of a released record that becomes available later. It is stored as AVAILABLE with the time."""


def is_settled(state: int) -> bool:
    """True if records with this state are settled: acknowledged or archived."""
    return state in (ACKNOWLEDGED, ARCHIVED)


class DeadReason(IntEnum):
    """Code of the reason of a dead letter, as it is stored."""

    NONE = 0
    REJECTED = 1
    ATTEMPTS = 2
    EXPIRED = 3
    OVERFLOW = 4


class Reason(NamedTuple):
    """Reason of a dead letter, with the text that the consumer gave when it rejected the record."""

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
    """The record has expired: it is archived, and the delivery is not counted. Not in KIP-932."""
    RETURN = 6
    """The record was not processed: it is available at once, and the delivery is not counted. Not in KIP-932."""


class AcquireMode(IntEnum):
    BATCH_OPTIMIZED = 0
    """Acquire whole record batches; the last one may exceed the limit of records."""
    RECORD_LIMIT = 1
    """Acquire one range of records, at most as many as the limit."""


class StateBatch(NamedTuple):
    """A range of offsets with one state, as it is stored in `__share_group_state`."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int
    ready_ms: int = 0
    """Time in milliseconds at which available records may be delivered; 0 for at once. Stored as wall-clock time."""
    reason: Reason = NO_REASON
    """Reason of the dead letters, in the state ARCHIVING."""
    wait_ms: int = 0
    """Milliseconds that were left until `ready_ms` when the batch was stored; 0 if that is unknown."""


class Letters(NamedTuple):
    """The producer of a share-partition's dead letters, and the batch in progress.

    The batch is stored before it is sent, and sent with the same sequence number until it is written, so that each
    record gets exactly one dead letter.
    """

    producer_id: int
    sequence: int
    """Sequence number of the first record of the batch; without a batch, of the next batch."""
    ranges: tuple[tuple[int, int], ...] = ()
    """First and last offsets of the records in the batch; empty without a batch."""

    @property
    def records(self) -> int:
        """Number of records in the batch."""
        return sum(last - first + 1 for first, last in self.ranges)


class StateUpdate(NamedTuple):
    """Changes of a share-partition since the last update."""

    start_offset: int
    delivery_complete_count: int
    """Number of settled records at or above the start offset."""
    batches: list[StateBatch]
    """Changed ranges at or above the start offset: sorted and disjoint."""
    letters: Letters | None = None
    """Dead letters that are being written; None leaves them unchanged."""


def to_wall_clock(batches: Sequence[StateBatch], now_ms: int, wall_ms: int) -> list[StateBatch]:
    """Convert the times in batches from the clock of deadlines to the wall clock; `now_ms` and `wall_ms` are their
    current times.
    """
    return [
        each._replace(
            ready_ms=max(1, each.ready_ms - now_ms + wall_ms), wait_ms=max(1, each.ready_ms - now_ms)
        )
        if each.ready_ms
        else each
        for each in batches
    ]


def from_wall_clock(batches: Sequence[StateBatch], now_ms: int, wall_ms: int) -> list[StateBatch]:
    """Convert the times in stored batches to the clock of deadlines.

    Records wait no longer than was left when they were stored: the wall clock of the former leader may have been hours
    ahead. A time never becomes 0, which would mean no time.
    """
    converted = []
    for batch in batches:
        if batch.ready_ms:
            left_ms = batch.ready_ms - wall_ms
            if batch.wait_ms:
                left_ms = min(left_ms, batch.wait_ms)
            batch = batch._replace(ready_ms=max(1, now_ms + left_ms))
        converted.append(batch)
    return converted


class Acquired(NamedTuple):
    """Range of records that was given to a member."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """A range of offsets in an acknowledge request, with one type for the whole range or one for each offset."""

    first_offset: int
    last_offset: int
    types: bytes


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Settings of a share group for its share-partitions."""

    lock_ms: int = 30_000
    delivery_limit: int = 5
    max_locks: int = 2_000
    max_ranges: int = 20_000
    """Maximum number of ranges in memory. At the maximum no new records are acquired."""
    may_renew: bool = True
    backoff: RetryBackoff = NO_BACKOFF
    """Delay before the next delivery of records that are released or whose lock expires."""
    has_dead_letters: bool = False
    """True if records that are rejected, expire or reach the delivery limit get a dead letter."""
    max_archiving: int = 100_000
    """Maximum number of records that wait for their dead letters. At the maximum no records are acquired."""
    has_priorities: bool = False
    """True if records with a higher priority level are delivered first."""
    lower_share: float = 0.0
    """Share of the deliveries that is reserved for levels below the highest one, from 0 to below 1."""
    is_ordered: bool = False
    """True if a record is delivered only when all earlier records with its key are settled."""
