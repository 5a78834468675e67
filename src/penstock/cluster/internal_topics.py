"""Internal topics: the state of groups, transactions, share groups, schedules and webhooks, and the audit
log.

Brokers create and write these topics. Clients can only read them: they may not produce to them, and may not
create, delete, truncate or extend them.
"""

from __future__ import annotations

from penstock.cluster.topics import CreatableTopic
from penstock.config import (
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
    SHARE_STATE_TOPIC_MIN_ISR,
    SHARE_STATE_TOPIC_NUM_PARTITIONS,
    SHARE_STATE_TOPIC_REPLICATION_FACTOR,
    SHARE_STATE_TOPIC_SEGMENT_BYTES,
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_SEGMENT_BYTES,
    BrokerConfig,
)
from penstock.errors import BrokerError, ErrorCode

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
SCHEDULES_TOPIC = "__schedules"
WEBHOOKS_TOPIC = "__webhooks"
AUDIT_TOPIC = "__audit_log"
INTERNAL_TOPICS = frozenset(
    {OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC, SCHEDULES_TOPIC, WEBHOOKS_TOPIC, AUDIT_TOPIC}
)

OBJECTS_TOPIC_PARTITIONS = 6
"""Number of partitions of an internal topic for one kind of named objects. Each partition is owned by one broker."""

MIN_CLEANABLE_DIRTY_RATIO = "0.1"
"""Low value, so that compaction leaves little to read when a coordinator loads. Most records replace a recent
record, and loading costs more than compaction.
"""


def is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS


def is_reserved(topic: str) -> bool:
    """True if clients may not create a topic of this name, because it is the name of an internal topic or
    collides with one.
    """
    return topic.replace(".", "_") in INTERNAL_TOPICS


def refuse_internal(topic: str) -> None:
    """Raise BrokerError if the name is reserved, for requests that clients may not make on internal topics."""
    if is_reserved(topic):
        raise BrokerError(
            ErrorCode.invalid_topic_exception, f"{topic} is an internal topic; clients can only read it"
        )


def new_offsets_topic(config: BrokerConfig) -> CreatableTopic:
    return CreatableTopic(
        OFFSETS_TOPIC,
        config[OFFSETS_TOPIC_NUM_PARTITIONS],
        config[OFFSETS_TOPIC_REPLICATION_FACTOR],
        configs=_settings(config[OFFSETS_TOPIC_SEGMENT_BYTES]),
    )


def new_transactions_topic(config: BrokerConfig) -> CreatableTopic:
    return CreatableTopic(
        TRANSACTIONS_TOPIC,
        config[TRANSACTION_STATE_LOG_NUM_PARTITIONS],
        config[TRANSACTION_STATE_LOG_REPLICATION_FACTOR],
        configs=_settings(config[TRANSACTION_STATE_LOG_SEGMENT_BYTES], config[TRANSACTION_STATE_LOG_MIN_ISR]),
    )


def new_share_state_topic(config: BrokerConfig) -> CreatableTopic:
    """Topic with the state of share groups. It is not compacted, because an update is useless without the
    snapshot before it; the coordinator deletes old records.
    """
    settings = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": str(config[SHARE_STATE_TOPIC_SEGMENT_BYTES]),
    }
    min_insync_replicas = config[SHARE_STATE_TOPIC_MIN_ISR]
    if min_insync_replicas is not None:
        settings["min.insync.replicas"] = str(min_insync_replicas)
    return CreatableTopic(
        SHARE_STATE_TOPIC,
        config[SHARE_STATE_TOPIC_NUM_PARTITIONS],
        config[SHARE_STATE_TOPIC_REPLICATION_FACTOR],
        configs=settings,
    )


def new_objects_topic(name: str, config: BrokerConfig) -> CreatableTopic:
    """Topic for one kind of named objects (`objects/kind.py`), replicated like the topic with transaction states."""
    return CreatableTopic(
        name,
        OBJECTS_TOPIC_PARTITIONS,
        config[TRANSACTION_STATE_LOG_REPLICATION_FACTOR],
        configs=_settings(config[TRANSACTION_STATE_LOG_SEGMENT_BYTES], config[TRANSACTION_STATE_LOG_MIN_ISR]),
    )


def new_audit_topic(config: BrokerConfig) -> CreatableTopic:
    """Topic for the audit log. Its records are deleted after the cluster's default retention time."""
    settings = {"cleanup.policy": "delete", "compression.type": "producer"}
    replication_factor = config[TRANSACTION_STATE_LOG_REPLICATION_FACTOR]
    return CreatableTopic(AUDIT_TOPIC, 1, replication_factor, configs=settings)


def _settings(segment_bytes: int, min_insync_replicas: int | None = None) -> dict[str, str]:
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "min.cleanable.dirty.ratio": MIN_CLEANABLE_DIRTY_RATIO,
        "segment.bytes": str(segment_bytes),
    }
    if min_insync_replicas is not None:
        settings["min.insync.replicas"] = str(min_insync_replicas)
    return settings
