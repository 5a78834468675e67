"""Queues as values: their settings, their state, and a queue to create."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.config import (
    DEAD_LETTER_TOPIC_NAME,
    SHARE_DELIVERY_COUNT_LIMIT,
    SHARE_MAX_LENGTH,
    SHARE_MAX_LENGTH_POLICY,
    SHARE_ORDER,
    SHARE_PRIORITY_ENABLE,
    SHARE_PRIORITY_SHARE,
    SHARE_RECORD_LOCK_DURATION_MS,
    SHARE_RETRY_BACKOFF_MS,
    MaxLengthPolicy,
)
from penstock.wire.share_status import ShareStatus

SETTINGS: Final[Mapping[str, str]] = {
    "lock_ms": SHARE_RECORD_LOCK_DURATION_MS.name,
    "max_attempts": SHARE_DELIVERY_COUNT_LIMIT.name,
    "back_off": SHARE_RETRY_BACKOFF_MS.name,
    "dead_letter": DEAD_LETTER_TOPIC_NAME.name,
    "order": SHARE_ORDER.name,
    "priorities": SHARE_PRIORITY_ENABLE.name,
    "priority_share": SHARE_PRIORITY_SHARE.name,
    "max_length": SHARE_MAX_LENGTH.name,
    "max_length_policy": SHARE_MAX_LENGTH_POLICY.name,
}
"""Names of the group configs that hold the settings of a queue, by setting."""


DEAD_REASONS: Final = ("rejected", "attempts", "expired", "overflow")
"""Reasons why messages become dead letters."""


@dataclass(frozen=True, slots=True)
class QueueSummary:
    name: str
    topic: str
    lock_ms: int
    max_attempts: int
    back_off: str
    dead_letter: str = ""
    """Name of the dead-letter topic; empty if there is none."""
    of: str = ""
    """Source of the view `topic`; empty if `topic` is not a view."""
    filter: str = ""
    """Filter that messages must match; empty if all messages match."""
    order: str = "none"
    """Order of delivery: `key`, or `none`."""
    priorities: bool = False
    """True if messages with a higher priority are delivered first."""
    priority_share: float = 0.0
    """Share of deliveries that is reserved for messages of lower priorities, from 0 to 1."""
    max_length: int = 0
    """Maximum number of messages that are not settled; 0 for no limit."""
    max_length_policy: str = MaxLengthPolicy.REFUSE.value
    """Policy when the queue has its maximum length: `refuse` or `dead-letter`."""

    @property
    def sent_to(self) -> str:
        """Name of the topic to which messages for the queue are written."""
        return self.of or self.topic


@dataclass(frozen=True, slots=True)
class QueuePartition:
    partition: int
    start_offset: int | None
    depth: int | None
    """Number of messages that are not settled; None if unknown."""
    in_flight: int = 0
    waiting: int = 0
    delayed: int = 0
    archiving: int = 0
    """Number of messages that wait to be written to the dead-letter topic."""
    redelivered: int = 0
    """Number of redeliveries since the partition's leader loaded the state."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """Number of dead letters by reason since the partition's leader loaded the state."""


@dataclass(frozen=True, slots=True)
class QueueDetails:
    summary: QueueSummary
    partitions: tuple[QueuePartition, ...]
    kept_by: Mapping[int, str] = field(default_factory=dict)
    """Reason why records are kept, by partition, if the topic has `retention.acknowledged`."""
    retain: str = ""
    """Retention of the topic: `acknowledged`, a time such as `2w`, or `forever`; empty if unknown."""

    @property
    def depth(self) -> int:
        return sum(each.depth or 0 for each in self.partitions)

    @property
    def depth_is_upper_bound(self) -> bool:
        """True if `depth` may count messages that do not match the filter, because the queue has not read them yet."""
        return bool(self.summary.of)

    @property
    def in_flight(self) -> int:
        return sum(each.in_flight for each in self.partitions)

    @property
    def delayed(self) -> int:
        return sum(each.delayed for each in self.partitions)

    @property
    def archiving(self) -> int:
        return sum(each.archiving for each in self.partitions)

    @property
    def redelivered(self) -> int:
        return sum(each.redelivered for each in self.partitions)

    @property
    def dead_letters(self) -> dict[str, int]:
        """Number of dead letters by reason since the leaders of the partitions loaded their states."""
        total: Counter[str] = Counter()
        for each in self.partitions:
            total.update(each.dead_letters)
        return dict(total)


@dataclass(frozen=True, slots=True)
class NewQueue:
    """Queue to create, with a topic of its own or on an existing topic."""

    name: str
    of: str | None = None
    partitions: int = -1
    replication_factor: int = -1
    settings: Mapping[str, str] = field(default_factory=dict)
    """Setting values by the names of `SETTINGS`."""
    is_from_end: bool = False
    """True to leave out the messages that an existing topic has now."""
    filter: str = ""
    """Filter for the messages of an existing topic; empty for all messages."""
    retain: str = ""
    """Retention of the queue's own topic, in the format of `retain_configs`; empty for the default."""

    @property
    def topic(self) -> str:
        """Name of the topic that the queue reads: its own, the existing one, or a view with the name of the queue."""
        return self.of if self.of is not None and not self.filter else self.name


def queue_partition(
    number: int, start_offset: int | None, depth: int | None, served: ShareStatus | None
) -> QueuePartition:
    """State of a partition of a queue. `served` is the part that only the leader knows; None if there is none."""
    if served is None:
        return QueuePartition(number, start_offset, depth)
    return QueuePartition(
        number,
        start_offset,
        depth,
        served.in_flight,
        served.waiting,
        served.delayed,
        served.archiving,
        served.redelivered,
        {reason: getattr(served, reason) for reason in DEAD_REASONS},
    )
