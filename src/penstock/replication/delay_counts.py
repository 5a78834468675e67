"""Counts of delayed messages in the partitions that this broker leads, for metrics. Loop thread only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.delay.packing import DueMessage
from penstock.errors import BrokerError, ErrorCode
from penstock.observability.metrics import Histogram

if TYPE_CHECKING:
    from penstock.replication.delayed_delivery import DelayedLog


@dataclass(slots=True)
class DelayCounts:
    logs: dict[DelayedLog, None] = field(default_factory=dict)
    """Delayed logs of the partitions that this broker leads."""
    delivered: int = 0
    cancelled: int = 0
    lateness: Histogram = field(default_factory=Histogram)
    """Time in seconds between the due time of a message and its delivery."""
    retried: int = 0
    """Number of records that were produced to retry topics for another attempt."""
    exhausted: int = 0
    """Number of batches that retry topics have refused because a record had no attempt left."""
    moved: int = 0
    """Number of pending messages that were copied to the end of the log before their segment was deleted."""
    held_segments: int = 0
    """Number of segments that the last round of retention kept because most of their bytes are pending messages."""
    unreadable: int = 0
    """Number of times that a damaged record has prevented a delivery."""

    def on_retried(self, records: int, refusal: BrokerError | None) -> None:
        """Count a checked batch of a retry topic."""
        if refusal is None:
            self.retried += records
        elif refusal.code is ErrorCode.policy_violation:
            self.exhausted += 1

    @property
    def pending(self) -> int:
        return sum(len(log.pending) for log in self.logs)

    def on_delivered(self, messages: Iterable[DueMessage], now_ms: int) -> None:
        for each in messages:
            self.delivered += 1
            self.lateness.observe((now_ms - each.due_ms) / 1000)
