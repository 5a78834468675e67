"""Settings of one log: plain values, resolved from the topic's and the broker's configuration.

The defaults are those of the option declarations, so that a log in a test behaves like a log of a broker.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config import retry_options as retry
from penstock.config import storage_options as storage
from penstock.config import topic_options as topic
from penstock.config.retry_backoff import RetryBackoff
from penstock.config.settings import BrokerConfig, TopicConfig
from penstock.config.topic_values import CleanupPolicy, MessageTimestampType
from penstock.delay.checking import DelayRules
from penstock.delay.retrying import RetryRules
from penstock.storage.batch_scan import MAX_RELATIVE_OFFSET

KEYED_SEGMENT_RECORDS = 1 << 18
"""Maximum number of records in a segment with a key index, which limits memory and the work of making its file."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = topic.SEGMENT_BYTES.default
    segment_ms: int = topic.SEGMENT_MS.default
    retention_ms: int = topic.RETENTION_MS.default
    retention_bytes: int = topic.RETENTION_BYTES.default
    index_interval_bytes: int = topic.INDEX_INTERVAL_BYTES.default
    index_by_key: bool = topic.INDEX_BY_KEY.default
    max_message_bytes: int = topic.MAX_MESSAGE_BYTES.default
    cleanup_policy: tuple[CleanupPolicy, ...] = topic.CLEANUP_POLICY.default
    delete_retention_ms: int = topic.DELETE_RETENTION_MS.default
    min_compaction_lag_ms: int = topic.MIN_COMPACTION_LAG_MS.default
    max_compaction_lag_ms: int = topic.MAX_COMPACTION_LAG_MS.default
    min_cleanable_dirty_ratio: float = topic.MIN_CLEANABLE_DIRTY_RATIO.default
    message_timestamp_type: MessageTimestampType = topic.MESSAGE_TIMESTAMP_TYPE.default
    message_timestamp_before_max_ms: int = topic.MESSAGE_TIMESTAMP_BEFORE_MAX_MS.default
    message_timestamp_after_max_ms: int = topic.MESSAGE_TIMESTAMP_AFTER_MAX_MS.default
    delivery_delay: bool = topic.DELIVERY_DELAY.default
    delivery_delay_default_ms: int = topic.DELIVERY_DELAY_DEFAULT_MS.default
    delivery_delay_max_ms: int = topic.DELIVERY_DELAY_MAX_MS.default
    message_ttl_ms: int = topic.MESSAGE_TTL_MS.default
    retention_acknowledged: bool = topic.RETENTION_ACKNOWLEDGED.default
    retry_group: str = retry.RETRY_GROUP.default
    retry_max_attempts: int = retry.RETRY_MAX_ATTEMPTS.default
    retry_backoff: RetryBackoff = retry.RETRY_BACKOFF_MS.default
    retry_dead_letter_topic: str = retry.RETRY_DEAD_LETTER_TOPIC.default
    max_decompressed_bytes: int = storage.MAX_DECOMPRESSED_BYTES.default
    max_producers: int = storage.MAX_PRODUCERS_PER_PARTITION.default
    producer_id_expiration_ms: int = storage.PRODUCER_ID_EXPIRATION_MS.default

    @property
    def compacts(self) -> bool:
        return CleanupPolicy.COMPACT in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return CleanupPolicy.DELETE in self.cleanup_policy

    @property
    def max_relative_offset(self) -> int:
        """Maximum relative offset of the last record in a segment."""
        return KEYED_SEGMENT_RECORDS - 1 if self.index_by_key else MAX_RELATIVE_OFFSET

    @property
    def checks_records(self) -> bool:
        """True if the records of a batch are decoded and checked before the batch is appended."""
        return self.compacts

    @property
    def delay_rules(self) -> DelayRules | None:
        """Rules for delayed and expiring messages; None if the topic has none."""
        if not self.delivery_delay and self.message_ttl_ms < 0:
            return None
        return DelayRules(
            self.delivery_delay_default_ms,
            self.delivery_delay_max_ms,
            self.max_decompressed_bytes,
            self.message_ttl_ms,
            self.delivery_delay,
            self._retry_rules,
        )

    @property
    def _retry_rules(self) -> RetryRules | None:
        if not self.retry_group:
            return None
        return RetryRules(
            self.retry_max_attempts,
            self.retry_backoff,
            self.retry_dead_letter_topic,
            self.delivery_delay_max_ms,
        )

    @property
    def requires_keys(self) -> bool:
        return self.compacts

    @classmethod
    def resolve(cls, topic_config: TopicConfig, broker_config: BrokerConfig) -> LogConfig:
        return cls(
            segment_bytes=topic_config[topic.SEGMENT_BYTES],
            segment_ms=_segment_ms(topic_config),
            retention_ms=topic_config[topic.RETENTION_MS],
            retention_bytes=topic_config[topic.RETENTION_BYTES],
            index_interval_bytes=topic_config[topic.INDEX_INTERVAL_BYTES],
            index_by_key=topic_config[topic.INDEX_BY_KEY],
            max_message_bytes=topic_config[topic.MAX_MESSAGE_BYTES],
            cleanup_policy=topic_config[topic.CLEANUP_POLICY],
            delete_retention_ms=topic_config[topic.DELETE_RETENTION_MS],
            min_compaction_lag_ms=topic_config[topic.MIN_COMPACTION_LAG_MS],
            max_compaction_lag_ms=topic_config[topic.MAX_COMPACTION_LAG_MS],
            min_cleanable_dirty_ratio=topic_config[topic.MIN_CLEANABLE_DIRTY_RATIO],
            message_timestamp_type=topic_config[topic.MESSAGE_TIMESTAMP_TYPE],
            message_timestamp_before_max_ms=topic_config[topic.MESSAGE_TIMESTAMP_BEFORE_MAX_MS],
            message_timestamp_after_max_ms=topic_config[topic.MESSAGE_TIMESTAMP_AFTER_MAX_MS],
            delivery_delay=topic_config[topic.DELIVERY_DELAY],
            delivery_delay_default_ms=topic_config[topic.DELIVERY_DELAY_DEFAULT_MS],
            delivery_delay_max_ms=topic_config[topic.DELIVERY_DELAY_MAX_MS],
            message_ttl_ms=topic_config[topic.MESSAGE_TTL_MS],
            retention_acknowledged=topic_config[topic.RETENTION_ACKNOWLEDGED],
            retry_group=topic_config[retry.RETRY_GROUP],
            retry_max_attempts=topic_config[retry.RETRY_MAX_ATTEMPTS],
            retry_backoff=topic_config[retry.RETRY_BACKOFF_MS],
            retry_dead_letter_topic=topic_config[retry.RETRY_DEAD_LETTER_TOPIC],
            max_decompressed_bytes=broker_config[storage.MAX_DECOMPRESSED_BYTES],
            max_producers=broker_config[storage.MAX_PRODUCERS_PER_PARTITION],
            producer_id_expiration_ms=broker_config[storage.PRODUCER_ID_EXPIRATION_MS],
        )


def _segment_ms(topic_config: TopicConfig) -> int:
    """`segment.ms`, shortened so that a compacted log closes its segments in time for `max.compaction.lag.ms`."""
    segment_ms = topic_config[topic.SEGMENT_MS]
    if CleanupPolicy.COMPACT in topic_config[topic.CLEANUP_POLICY]:
        return min(segment_ms, topic_config[topic.MAX_COMPACTION_LAG_MS])
    return segment_ms
