"""States of records in a share group, types of acknowledgement, and the settings of a share-partition.

The numbers are those of Kafka (KIP-932); they are in `__share_group_state` and on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple


class RecordState(IntEnum):
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


AVAILABLE: Final = int(RecordState.AVAILABLE)
ACQUIRED: Final = int(RecordState.ACQUIRED)
ACKNOWLEDGED: Final = int(RecordState.ACKNOWLEDGED)
ARCHIVED: Final = int(RecordState.ARCHIVED)


class AcknowledgeType(IntEnum):
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    BATCH_OPTIMIZED = 0
    """Whole record batches; the last one may exceed the limit of records."""
    RECORD_LIMIT = 1
    """At most the limit of records, in one range."""


class StateBatch(NamedTuple):
    """A range of offsets with one state, as `__share_group_state` holds it."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class StateUpdate(NamedTuple):
    """Changes of a share-partition since the update before."""

    start_offset: int
    delivery_complete_count: int
    """Number of settled records at or above the start offset."""
    batches: list[StateBatch]
    """Changed ranges at or above the start offset: sorted and disjoint."""


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
