"""Broker options for transactions. Kafka's options have Kafka's names."""

from __future__ import annotations

from penstock.config.options import Option, OptionGroup
from penstock.config.types import INT_MAX, LONG_MAX, Integer, Optional

TRANSACTIONS = OptionGroup("Transactions")
TRANSACTION_MAX_TIMEOUT_MS: Option[int] = TRANSACTIONS.option(
    "transaction.max.timeout.ms",
    Integer(1, INT_MAX),
    900_000,
    "Maximum transaction timeout. A producer that requests a longer one is refused with "
    "INVALID_TRANSACTION_TIMEOUT.",
    dynamic=True,
)
TRANSACTIONAL_ID_EXPIRATION_MS: Option[int] = TRANSACTIONS.option(
    "transactional.id.expiration.ms",
    Integer(1, LONG_MAX),
    604_800_000,
    "A transactional id without a transaction for this long is deleted.",
    dynamic=True,
)
TRANSACTION_CLEANUP_INTERVAL_MS: Option[int] = TRANSACTIONS.option(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    Integer(1, INT_MAX),
    3_600_000,
    "Interval at which the broker looks for expired transactional ids (`transactional.id.expiration.ms`).",
    dynamic=True,
)
TRANSACTION_ABORT_INTERVAL_MS: Option[int] = TRANSACTIONS.option(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    Integer(1, INT_MAX),
    10_000,
    "Interval at which the broker looks, in the partitions it leads, for transactions that have been open for "
    "longer than `transaction.max.timeout.ms` plus this interval. A transaction that no coordinator knows is "
    "aborted.",
    dynamic=True,
)
TRANSACTIONAL_ID_MAX_COUNT: Option[int] = TRANSACTIONS.option(
    "transactional.id.max.count",
    Integer(1, INT_MAX),
    1_000_000,
    "Maximum number of transactional ids of a broker, fewer if the ids are longer than 256 characters on "
    "average. New ids beyond it are refused with POLICY_VIOLATION.",
    dynamic=True,
)
TRANSACTION_HELD_MAX_COUNT: Option[int] = TRANSACTIONS.option(
    "transaction.held.max.count",
    Integer(0, INT_MAX),
    10_000,
    "Maximum number of transactional ids of a broker with held transactions, which no timeout ends. Further "
    "ones are refused with POLICY_VIOLATION.",
    dynamic=True,
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS: Option[int] = TRANSACTIONS.option(
    "transaction.state.log.num.partitions",
    Integer(1, 10_000),
    50,
    "Number of partitions of `__transaction_state`. Fixed when the topic is created for the first "
    "transactional id, because each id belongs to one partition.",
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR: Option[int] = TRANSACTIONS.option(
    "transaction.state.log.replication.factor",
    Integer(-1, 32_767),
    -1,
    "Replication factor of `__transaction_state`. With fewer brokers in the cluster the topic is not created, "
    "and transactions wait. -1 uses the default for topics.",
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES: Option[int] = TRANSACTIONS.option(
    "transaction.state.log.segment.bytes",
    Integer(1_048_576, INT_MAX),
    16_777_216,
    "Segment size of `__transaction_state`. Small segments are compacted earlier, so that a coordinator has "
    "less to read when it starts.",
)
TRANSACTION_STATE_LOG_MIN_ISR: Option[int | None] = TRANSACTIONS.option(
    "transaction.state.log.min.isr",
    Optional(Integer(1, INT_MAX)),
    None,
    "`min.insync.replicas` of `__transaction_state`, used when the topic is created. If it is not set, it is "
    "2 with three replicas or more.",
)
