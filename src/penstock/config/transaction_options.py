"""Every setting of a broker that is about transactions. Kafka's names for Kafka's settings."""

from __future__ import annotations

from penstock.config.options import Group, Option
from penstock.config.types import INT_MAX, LONG_MAX, Integer, Optional

TRANSACTIONS = Group("Transactions")
TRANSACTION_MAX_TIMEOUT_MS: Option[int] = TRANSACTIONS.option(
    "transaction.max.timeout.ms",
    Integer(1, INT_MAX),
    900_000,
    "The longest a producer may let a transaction stay open; one that asks for more is refused with "
    "INVALID_TRANSACTION_TIMEOUT.",
    dynamic=True,
)
TRANSACTIONAL_ID_EXPIRATION_MS: Option[int] = TRANSACTIONS.option(
    "transactional.id.expiration.ms",
    Integer(1, LONG_MAX),
    604_800_000,
    "A transactional id without a transaction for this long is forgotten.",
    dynamic=True,
)
TRANSACTION_CLEANUP_INTERVAL_MS: Option[int] = TRANSACTIONS.option(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    Integer(1, INT_MAX),
    3_600_000,
    "How often the broker looks for transactional ids to forget.",
    dynamic=True,
)
TRANSACTION_ABORT_INTERVAL_MS: Option[int] = TRANSACTIONS.option(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    Integer(1, INT_MAX),
    10_000,
    "How often the broker looks in the partitions it leads for transactions that are open for longer than "
    "`transaction.max.timeout.ms` and this together. One that no coordinator knows is aborted.",
    dynamic=True,
)
TRANSACTIONAL_ID_MAX_COUNT: Option[int] = TRANSACTIONS.option(
    "transactional.id.max.count",
    Integer(1, INT_MAX),
    1_000_000,
    "The most transactional ids a broker remembers, fewer where their names are longer than 256 characters on average; "
    "beyond it new ones are refused with POLICY_VIOLATION.",
    dynamic=True,
)
TRANSACTION_HELD_MAX_COUNT: Option[int] = TRANSACTIONS.option(
    "transaction.held.max.count",
    Integer(0, INT_MAX),
    10_000,
    "The most transactional ids of a broker whose transactions are held: no timeout ends those. Beyond it further ones "
    "are refused with POLICY_VIOLATION.",
    dynamic=True,
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS: Option[int] = TRANSACTIONS.option(
    "transaction.state.log.num.partitions",
    Integer(1, 10_000),
    50,
    "The partitions of `__transaction_state`, set when the first transactional id is seen and not changed afterwards: "
    "each id belongs to one of them.",
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR: Option[int] = TRANSACTIONS.option(
    "transaction.state.log.replication.factor",
    Integer(-1, 32_767),
    -1,
    "The copies of `__transaction_state`; while fewer brokers are known it is not made, and transactions wait. -1: as "
    "of any other topic.",
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES: Option[int] = TRANSACTIONS.option(
    "transaction.state.log.segment.bytes",
    Integer(1_048_576, INT_MAX),
    16_777_216,
    "The size of a segment of `__transaction_state`. Small ones are compacted sooner, so that a coordinator has less "
    "to read when it starts.",
)
TRANSACTION_STATE_LOG_MIN_ISR: Option[int | None] = TRANSACTIONS.option(
    "transaction.state.log.min.isr",
    Optional(Integer(1, INT_MAX)),
    None,
    "`min.insync.replicas` of `__transaction_state` when it is created; without a value 2 where it has three replicas "
    "or more.",
)
