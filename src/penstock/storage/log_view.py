"""State of a log at one moment, for work in a thread pool that reads the log."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model import Offset
from penstock.storage.aborted_transactions import AbortedTransactions
from penstock.storage.damage import NO_DAMAGE, Damage
from penstock.storage.log import Log
from penstock.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class LogView:
    """State of a log at one moment."""

    segments: tuple[Segment, ...]
    end: int
    """Size of the last segment in bytes."""
    generation: int
    log_start_offset: Offset
    log_end_offset: Offset
    below: Offset
    """Consumers may read records below this offset."""
    aborted: AbortedTransactions
    max_decompressed_bytes: int
    damage: Damage = NO_DAMAGE
    hides_delayed: bool = False
    """True if consumers do not receive delayed messages from the log, because the topic has `delivery.delay`."""

    @classmethod
    def of(cls, log: Log) -> LogView:
        """The present state of a log. Loop thread."""
        segments = log.segments
        return cls(
            segments,
            segments[-1].size if segments else 0,
            log.generation,
            log.log_start_offset,
            log.log_end_offset,
            log.last_stable_offset,
            log.producers.aborted,
            log.config.max_decompressed_bytes,
            log.damage,
            log.config.delivery_delay,
        )
