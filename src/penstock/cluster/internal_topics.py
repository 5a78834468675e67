"""Topics the cluster keeps for itself: made by a coordinator, readable by everybody, written by nobody else.

What is in them is the state of groups and transactions, so clients may neither produce to them nor delete, truncate,
create or grow them.
"""

from __future__ import annotations

from penstock.cluster.topics import NewTopic
from penstock.config import (
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_SEGMENT_BYTES,
    BrokerConfig,
)
from penstock.errors import BrokerError, ErrorCode

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

MIN_CLEANABLE_DIRTY_RATIO = "0.1"
"""Whatever compaction has not looked at is read in vain by the next coordinator, and reading there costs far more than
compacting once: most of what is written replaces a commit of a moment ago."""


def is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS


def is_reserved(topic: str) -> bool:
    """Whether a client may not make a topic of this name: it is internal, or would stand in the way of one that is."""
    return topic.replace(".", "_") in INTERNAL_TOPICS


def refuse_internal(topic: str) -> None:
    """BrokerError for what a client may not do to a topic of the cluster's own."""
    if is_reserved(topic):
        raise BrokerError(
            ErrorCode.invalid_topic_exception, f"{topic} belongs to the cluster: it can only be read"
        )


def new_offsets_topic(config: BrokerConfig) -> NewTopic:
    return NewTopic(
        OFFSETS_TOPIC,
        config[OFFSETS_TOPIC_NUM_PARTITIONS],
        config[OFFSETS_TOPIC_REPLICATION_FACTOR],
        configs=_settings(config[OFFSETS_TOPIC_SEGMENT_BYTES]),
    )


def new_transactions_topic(config: BrokerConfig) -> NewTopic:
    return NewTopic(
        TRANSACTIONS_TOPIC,
        config[TRANSACTION_STATE_LOG_NUM_PARTITIONS],
        config[TRANSACTION_STATE_LOG_REPLICATION_FACTOR],
        configs=_settings(config[TRANSACTION_STATE_LOG_SEGMENT_BYTES], config[TRANSACTION_STATE_LOG_MIN_ISR]),
    )


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
