"""Broker options for storage and replication. Kafka's options have Kafka's names."""

from __future__ import annotations

from enum import StrEnum

from penstock.config.options import Option, OptionGroup
from penstock.config.types import INT_MAX, LONG_MAX, Boolean, Choice, Integer, Optional, Text


class ReplicaSelector(StrEnum):
    """Replica selectors by Kafka's class names."""

    LEADER = "org.apache.kafka.common.replica.LeaderSelector"
    RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


STORAGE = OptionGroup("Storage")
LOG_CLEANER_BACKOFF_MS: Option[int] = STORAGE.option(
    "log.cleaner.backoff.ms",
    Integer(1, LONG_MAX),
    15_000,
    "Interval at which the broker looks for logs to compact.",
    dynamic=True,
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE: Option[int] = STORAGE.option(
    "log.cleaner.dedupe.buffer.size",
    Integer(1_048_576, LONG_MAX),
    134_217_728,
    "Maximum memory of one compaction for its table of keys. A log with more keys is compacted in several "
    "passes.",
    dynamic=True,
)
LOG_CLEANER_ENABLE: Option[bool] = STORAGE.option(
    "log.cleaner.enable",
    Boolean(),
    True,
    "Whether topics with `cleanup.policy=compact` are compacted.",
    dynamic=True,
)
LOG_DIR_MIN_FREE_BYTES: Option[int] = STORAGE.option(
    "log.dir.min.free.bytes",
    Integer(0, LONG_MAX),
    268_435_456,
    "Minimum free space on the disk of the data directory. Below it writes are refused with "
    "KAFKA_STORAGE_ERROR until there is space again; reads continue.",
    dynamic=True,
)
LOG_FLUSH_CHECKPOINT_BYTES: Option[int] = STORAGE.option(
    "log.flush.checkpoint.bytes",
    Integer(1, LONG_MAX),
    134_217_728,
    "The recovery point of a log also advances after this many new bytes, so that little has to be checked "
    "after a crash.",
    dynamic=True,
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS: Option[int] = STORAGE.option(
    "log.flush.offset.checkpoint.interval.ms",
    Integer(1, LONG_MAX),
    60_000,
    "Interval at which the recovery points of logs with new records advance. Records after the recovery point "
    "are checked after a crash.",
    dynamic=True,
)
LOG_SCRUB_BYTES_PER_SECOND: Option[int] = STORAGE.option(
    "log.scrub.bytes.per.second",
    Integer(0, LONG_MAX),
    8_388_608,
    "Maximum rate at which the background scrub reads stored batches to verify their CRCs; 0 disables the "
    "scrub. It uses at most 5 % of one processor.",
    dynamic=True,
)
LOG_SCRUB_INTERVAL_MS: Option[int] = STORAGE.option(
    "log.scrub.interval.ms",
    Integer(0, LONG_MAX),
    604_800_000,
    "Interval at which the background scrub starts to read all logs of the broker, for the first time ten "
    "minutes after the start. 0 disables the scrub.",
    dynamic=True,
)
LOG_OPEN_FILES_MAX: Option[int] = STORAGE.option(
    "log.open.files.max",
    Integer(16, INT_MAX),
    7_000,
    "Maximum number of segment files that are open at a time. The least recently used ones are closed and "
    "opened again when needed.",
)
LOG_RETENTION_CHECK_INTERVAL_MS: Option[int] = STORAGE.option(
    "log.retention.check.interval.ms",
    Integer(1, LONG_MAX),
    300_000,
    "Interval at which the broker looks for segments to delete by retention.",
    dynamic=True,
)
MAX_DECOMPRESSED_BYTES: Option[int] = STORAGE.option(
    "max.decompressed.bytes",
    Integer(1_024, INT_MAX),
    67_108_864,
    "Maximum decompressed size of a batch in topics for which the broker reads the records (compacted "
    "topics). A larger batch is refused with INVALID_RECORD.",
    dynamic=True,
)
MAX_PRODUCERS_PER_PARTITION: Option[int] = STORAGE.option(
    "max.producers.per.partition",
    Integer(1, INT_MAX),
    20_000,
    "Maximum number of idempotent producers that a partition remembers. The longest inactive ones are "
    "forgotten first.",
)
PRODUCER_ID_EXPIRATION_MS: Option[int] = STORAGE.option(
    "producer.id.expiration.ms",
    Integer(1, LONG_MAX),
    86_400_000,
    "Time for which a partition remembers an inactive idempotent producer in order to detect its retries.",
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: Option[int] = STORAGE.option(
    "replica.high.watermark.checkpoint.interval.ms",
    Integer(1, LONG_MAX),
    5_000,
    "Interval at which high watermarks are written to disk.",
)

REPLICATION = OptionGroup("Replication")
CLUSTER_SECRET: Option[str | None] = REPLICATION.option(
    "cluster.secret",
    Optional(Text()),
    None,
    "Secret by which the brokers of a cluster authenticate to each other, with the same value on all brokers. "
    "If it is not set, the first broker generates one and stores it in ZooKeeper, where every client of "
    "ZooKeeper with access to its nodes can read it.",
    sensitive=True,
)
LEADER_REPLICATION_THROTTLED_RATE: Option[int] = REPLICATION.option(
    "leader.replication.throttled.rate",
    Integer(1, LONG_MAX),
    LONG_MAX,
    "Maximum bytes in a second that the broker sends as a leader to followers that are not in sync, for the "
    "replicas in `leader.replication.throttled.replicas`. In-sync followers are not throttled.",
    dynamic=True,
)
FOLLOWER_REPLICATION_THROTTLED_RATE: Option[int] = REPLICATION.option(
    "follower.replication.throttled.rate",
    Integer(1, LONG_MAX),
    LONG_MAX,
    "Maximum bytes in a second that the broker fetches as a follower while it is not in sync, for the "
    "replicas in `follower.replication.throttled.replicas`.",
    dynamic=True,
)
REPLICA_FETCH_MAX_BYTES: Option[int] = REPLICATION.option(
    "replica.fetch.response.max.bytes",
    Integer(1, INT_MAX),
    10 * 1024 * 1024,
    "Maximum size of the records that a follower requests at a time. A first batch that is larger is still "
    "returned.",
)
REPLICA_FETCH_WAIT_MAX_MS: Option[int] = REPLICATION.option(
    "replica.fetch.wait.max.ms",
    Integer(1, INT_MAX),
    500,
    "Maximum time that a follower's fetch waits at the leader if there are no new records.",
)
REPLICA_LAG_TIME_MAX_MS: Option[int] = REPLICATION.option(
    "replica.lag.time.max.ms",
    Integer(1, LONG_MAX),
    10_000,
    "A follower leaves the in-sync set if it has not had all records of the leader for this long.",
)
REPLICA_SELECTOR_CLASS: Option[ReplicaSelector] = REPLICATION.option(
    "replica.selector.class",
    Choice(ReplicaSelector),
    ReplicaSelector.LEADER,
    "Replica that serves consumers: the leader only, or, for consumers with a `client.rack`, an in-sync "
    "follower in that rack (KIP-392). Use the same value on all brokers.",
    dynamic=True,
)
REPLICA_SOCKET_TIMEOUT_MS: Option[int] = REPLICATION.option(
    "replica.socket.timeout.ms",
    Integer(1, INT_MAX),
    30_000,
    "Time that a follower waits for a response of its leader before it connects again.",
)
