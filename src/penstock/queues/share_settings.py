"""Settings of a share group for its share-partitions, computed from the configs of the group and the broker."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config import (
    DEAD_LETTER_COPY_RECORD_ENABLE,
    DEAD_LETTER_TOPIC_NAME,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_DELIVERY_COUNT_LIMIT,
    SHARE_ISOLATION_LEVEL,
    SHARE_ORDER,
    SHARE_PARTITION_MAX_RECORD_LOCKS,
    SHARE_PRIORITY_ENABLE,
    SHARE_PRIORITY_SHARE,
    SHARE_RECORD_LOCK_DURATION_MS,
    SHARE_RENEW_ACKNOWLEDGE_ENABLE,
    SHARE_RETRY_BACKOFF_MS,
    SHARE_WRITE_TIMEOUT_MS,
    BrokerConfig,
    GroupConfig,
    ShareIsolationLevel,
    ShareOffsetReset,
    ShareOrder,
)
from penstock.queues.states import ShareSettings

MIN_RANGES = 200_000
"""Minimum of `max_ranges`: enough for 100,000 records that wait for different times, with settled records between."""
RANGES_PER_LOCK = 4


@dataclass(frozen=True, slots=True)
class GroupShareSettings:
    partition: ShareSettings
    offset_reset: ShareOffsetReset
    is_committed: bool
    """True if the group reads only committed records (read_committed)."""
    write_timeout_ms: int
    dead_letter_topic: str = ""
    """Topic of dead letters; empty if the group has none."""
    copies_records: bool = True
    """True if dead letters contain the key, value and headers of the record."""


def share_settings(broker: BrokerConfig, group: GroupConfig) -> GroupShareSettings:
    max_locks = group.bounded(SHARE_PARTITION_MAX_RECORD_LOCKS)
    return GroupShareSettings(
        ShareSettings(
            lock_ms=group.bounded(SHARE_RECORD_LOCK_DURATION_MS),
            delivery_limit=group.bounded(SHARE_DELIVERY_COUNT_LIMIT),
            max_locks=max_locks,
            max_ranges=max(MIN_RANGES, RANGES_PER_LOCK * max_locks),
            may_renew=group[SHARE_RENEW_ACKNOWLEDGE_ENABLE],
            backoff=group[SHARE_RETRY_BACKOFF_MS],
            has_dead_letters=bool(group[DEAD_LETTER_TOPIC_NAME]),
            has_priorities=group[SHARE_PRIORITY_ENABLE],
            lower_share=group[SHARE_PRIORITY_SHARE],
            is_ordered=group[SHARE_ORDER] is ShareOrder.KEY,
        ),
        group[SHARE_AUTO_OFFSET_RESET],
        group[SHARE_ISOLATION_LEVEL] is ShareIsolationLevel.READ_COMMITTED,
        broker[SHARE_WRITE_TIMEOUT_MS],
        group[DEAD_LETTER_TOPIC_NAME],
        group[DEAD_LETTER_COPY_RECORD_ENABLE],
    )
