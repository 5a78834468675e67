"""Topic options, each with the broker option that holds its default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from penstock.config.dead_letter_options import DEAD_LETTER_GROUP_ENABLE as DEAD_LETTER_GROUP_ENABLE
from penstock.config.delay_options import DELIVERY_DELAY as DELIVERY_DELAY
from penstock.config.delay_options import DELIVERY_DELAY_DEFAULT_MS as DELIVERY_DELAY_DEFAULT_MS
from penstock.config.delay_options import DELIVERY_DELAY_MAX_MS as DELIVERY_DELAY_MAX_MS
from penstock.config.delay_options import MESSAGE_TTL_MS as MESSAGE_TTL_MS
from penstock.config.delay_options import RETENTION_ACKNOWLEDGED as RETENTION_ACKNOWLEDGED
from penstock.config.key_layouts import NO_LAYOUTS, KeyLayouts, Layouts
from penstock.config.options import Option, table
from penstock.config.partition_lists import (
    NO_OFFSETS,
    NO_REPLICAS,
    OffsetsByPartition,
    PartitionOffsets,
    ReplicaList,
    Replicas,
)
from penstock.config.retry_options import RETRY_BACKOFF_MS as RETRY_BACKOFF_MS
from penstock.config.retry_options import RETRY_DEAD_LETTER_TOPIC as RETRY_DEAD_LETTER_TOPIC
from penstock.config.retry_options import RETRY_GROUP as RETRY_GROUP
from penstock.config.retry_options import RETRY_MAX_ATTEMPTS as RETRY_MAX_ATTEMPTS
from penstock.config.topic_declarations import TOPIC_DEFAULTS as TOPIC_DEFAULTS
from penstock.config.topic_declarations import TOPICS as TOPICS
from penstock.config.topic_declarations import topic
from penstock.config.topic_values import CleanupPolicy, CompressionType, Durability, MessageTimestampType
from penstock.config.types import (
    INT_MAX,
    LONG_MAX,
    Boolean,
    Choice,
    Fraction,
    Integer,
    ListOf,
    MaybeText,
    Only,
)

T = TypeVar("T")


_NO_TIERING = "there is no tiered storage, `penstock pipeline archive` copies old records to other storage"

ARCHIVE_OFFSETS: Option[OffsetsByPartition] = topic(
    "archive.offsets",
    PartitionOffsets(),
    NO_OFFSETS,
    "Offset up to which each partition is archived. `penstock pipeline archive` updates it for topics with "
    "`archive.required`.",
    broker="archive.offsets",
)
ARCHIVE_REQUIRED: Option[bool] = topic(
    "archive.required",
    Boolean(),
    False,
    "Whether records have to be archived (see `archive.offsets`) before they may be deleted by retention, "
    "compaction or DeleteRecords, whatever their age or number.",
    broker="archive.required",
)
CLEANUP_POLICY: Option[tuple[CleanupPolicy, ...]] = topic(
    "cleanup.policy",
    ListOf(CleanupPolicy, may_be_empty=True),
    (CleanupPolicy.DELETE,),
    "Treatment of old records: `delete` deletes segments by age and size, `compact` keeps the newest record "
    "of each key, `compact,delete` does both. An empty value keeps all records.",
    broker="log.cleanup.policy",
)
COMPRESSION_GZIP_LEVEL: Option[int] = topic(
    "compression.gzip.level",
    Integer(-1, 9),
    -1,
    "Accepted for Kafka's tools, without effect: the broker never compresses a batch again.",
    broker="compression.gzip.level",
)
COMPRESSION_LZ4_LEVEL: Option[int] = topic(
    "compression.lz4.level",
    Integer(1, 17),
    9,
    "Accepted for Kafka's tools, without effect: the broker never compresses a batch again.",
    broker="compression.lz4.level",
)
COMPRESSION_TYPE: Option[CompressionType] = topic(
    "compression.type",
    Choice(CompressionType),
    CompressionType.PRODUCER,
    "Accepted for Kafka's tools, without effect: batches are stored and served as the producer compressed "
    "them.",
    broker="compression.type",
)
COMPRESSION_ZSTD_LEVEL: Option[int] = topic(
    "compression.zstd.level",
    Integer(-131_072, 22),
    3,
    "Accepted for Kafka's tools, without effect: the broker never compresses a batch again.",
    broker="compression.zstd.level",
)
DELETE_RETENTION_MS: Option[int] = topic(
    "delete.retention.ms",
    Integer(0, LONG_MAX),
    86_400_000,
    "Time for which a compacted topic keeps a tombstone (a record without a value) after its compaction, so "
    "that consumers which started earlier see the deletion.",
    broker="log.cleaner.delete.retention.ms",
)
DURABILITY: Option[Durability] = topic(
    "durability",
    Choice(Durability),
    Durability.AUTO,
    "Condition for acknowledging a write with acks=all. `auto`: two machines have it, or with a single "
    "machine it is fsynced; `fsync`: it is fsynced on every in-sync replica; `os`: it is in the page cache of "
    "the in-sync replicas, which a power failure can lose.",
    broker="durability",
)
FILE_DELETE_DELAY_MS: Option[int] = topic(
    "file.delete.delay.ms",
    Integer(0, LONG_MAX),
    60_000,
    "Accepted for Kafka's tools, without effect: a deleted segment is removed when its last reader has "
    "finished.",
    broker="log.segment.delete.delay.ms",
)
FOLLOWER_REPLICATION_THROTTLED_REPLICAS: Option[ReplicaList] = topic(
    "follower.replication.throttled.replicas",
    Replicas(),
    NO_REPLICAS,
    "Replicas that fetch no faster than `follower.replication.throttled.rate` of their broker while they are "
    "not in sync.",
    broker="follower.replication.throttled.replicas",
)
FLUSH_MESSAGES: Option[int] = topic(
    "flush.messages",
    Integer(1, LONG_MAX),
    LONG_MAX,
    "Maximum number of records that are not fsynced. With any limit the topic has `durability=fsync`: a record "
    "is fsynced before it is acknowledged.",
    broker="log.flush.interval.messages",
)
FLUSH_MS: Option[int] = topic(
    "flush.ms",
    Integer(0, LONG_MAX),
    LONG_MAX,
    "Maximum time until a record is fsynced. With any limit the topic has `durability=fsync`: a record is fsynced "
    "before it is acknowledged.",
    broker="log.flush.interval.ms",
)
INDEX_BY_KEY: Option[bool] = topic(
    "index.by.key",
    Boolean(),
    False,
    "Whether the topic has a key index, which finds the records of one key without reading the others, as the "
    "gateway's mailboxes need. Segments are then closed at 262,144 records; the index takes 24 bytes of "
    "memory for each record of the newest segment and 26 bytes on disk for each older record. Producers wait "
    "while the index is more than 65,536 records behind.",
    broker="log.index.by.key",
)
INDEX_INTERVAL_BYTES: Option[int] = topic(
    "index.interval.bytes",
    Integer(1, INT_MAX),
    4_096,
    "Minimum number of record bytes between two entries of a segment's index. A smaller value finds offsets "
    "with less reading, but makes the index larger.",
    broker="log.index.interval.bytes",
)
INDEX_KEY_LAYOUTS: Option[KeyLayouts] = topic(
    "index.key.layouts",
    Layouts(),
    NO_LAYOUTS,
    "Partition counts by which the gateway has distributed keys, each with its start time, as in "
    "`12@0,24@1767225600000`, to find records from before the count was changed. Maintained by the gateway; "
    "do not change it.",
    broker="log.index.key.layouts",
)
LEADER_REPLICATION_THROTTLED_REPLICAS: Option[ReplicaList] = topic(
    "leader.replication.throttled.replicas",
    Replicas(),
    NO_REPLICAS,
    "Replicas, as partition and broker of the leader, that send no faster than "
    "`leader.replication.throttled.rate` of their broker to followers that are not in sync.",
    broker="leader.replication.throttled.replicas",
)
LOCAL_RETENTION_BYTES: Option[int] = topic(
    "local.retention.bytes",
    Only(Integer(-2, LONG_MAX), -2, _NO_TIERING),
    -2,
    "Always -2, the value of `retention.bytes`: there is no tiered storage.",
    broker="log.local.retention.bytes",
)
LOCAL_RETENTION_MS: Option[int] = topic(
    "local.retention.ms",
    Only(Integer(-2, LONG_MAX), -2, _NO_TIERING),
    -2,
    "Always -2, the value of `retention.ms`: there is no tiered storage.",
    broker="log.local.retention.ms",
)
MAX_COMPACTION_LAG_MS: Option[int] = topic(
    "max.compaction.lag.ms",
    Integer(1, LONG_MAX),
    LONG_MAX,
    "Maximum time before a record of a compacted topic is compacted, whatever `min.cleanable.dirty.ratio` "
    "says.",
    broker="log.cleaner.max.compaction.lag.ms",
)
MAX_MESSAGE_BYTES: Option[int] = topic(
    "max.message.bytes",
    Integer(0, INT_MAX),
    1_048_588,
    "Maximum size of a record batch after compression. A larger one is refused with MESSAGE_TOO_LARGE.",
    broker="message.max.bytes",
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS: Option[int] = topic(
    "message.timestamp.after.max.ms",
    Integer(0, LONG_MAX),
    3_600_000,
    "Maximum time by which a record's timestamp may be ahead of the broker's clock. A batch beyond it is "
    "refused with INVALID_TIMESTAMP, so that a wrong clock cannot defeat retention. Applies to CreateTime.",
    broker="log.message.timestamp.after.max.ms",
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Option[int] = topic(
    "message.timestamp.before.max.ms",
    Integer(0, LONG_MAX),
    LONG_MAX,
    "Maximum time by which a record's timestamp may be behind the broker's clock. A batch beyond it is "
    "refused with INVALID_TIMESTAMP. Applies to CreateTime.",
    broker="log.message.timestamp.before.max.ms",
)
MESSAGE_TIMESTAMP_TYPE: Option[MessageTimestampType] = topic(
    "message.timestamp.type",
    Choice(MessageTimestampType),
    MessageTimestampType.CREATE_TIME,
    "Timestamp of records: `CreateTime` is set by the producer, `LogAppendTime` by the broker when it stores "
    "the record.",
    broker="log.message.timestamp.type",
)
MIN_CLEANABLE_DIRTY_RATIO: Option[float] = topic(
    "min.cleanable.dirty.ratio",
    Fraction(),
    0.5,
    "Minimum share of a log's bytes that were written since the last compaction before the log is compacted "
    "again.",
    broker="log.cleaner.min.cleanable.ratio",
)
MIN_COMPACTION_LAG_MS: Option[int] = topic(
    "min.compaction.lag.ms",
    Integer(0, LONG_MAX),
    0,
    "Minimum time before a record of a compacted topic is compacted.",
    broker="log.cleaner.min.compaction.lag.ms",
)
MIN_INSYNC_REPLICAS: Option[int] = topic(
    "min.insync.replicas",
    Integer(1, INT_MAX),
    1,
    "Minimum number of in-sync replicas for a write with acks=all. With fewer the write is refused with "
    "NOT_ENOUGH_REPLICAS. If the broker does not set it, a topic that is created with three replicas or more "
    "gets 2.",
    broker="min.insync.replicas",
)
PARTITION_DRAIN_MAX_MS: Option[int] = topic(
    "partition.drain.max.ms",
    Integer(0, LONG_MAX),
    86_400_000,
    "Time after which a draining partition is sealed although clients still write to it or groups are behind. The "
    "log names those clients before.",
    broker="partition.drain.max.ms",
)
PARTITION_DRAIN_QUIET_MS: Option[int] = topic(
    "partition.drain.quiet.ms",
    Integer(0, LONG_MAX),
    600_000,
    "Time without a write after which a draining partition is sealed, if no transaction is open and no group that "
    "committed offsets there is behind.",
    broker="partition.drain.quiet.ms",
)
PREALLOCATE: Option[bool] = topic(
    "preallocate",
    Only(Boolean(), False),
    False,
    "Always false: segment files grow as they are written.",
    broker="log.preallocate",
)
REMOTE_LOG_COPY_DISABLE: Option[bool] = topic(
    "remote.log.copy.disable",
    Boolean(),
    False,
    "Accepted for Kafka's tools, without effect: there is no tiered storage.",
    broker="remote.log.copy.disable",
)
REMOTE_LOG_DELETE_ON_DISABLE: Option[bool] = topic(
    "remote.log.delete.on.disable",
    Boolean(),
    False,
    "Accepted for Kafka's tools, without effect: there is no tiered storage.",
    broker="remote.log.delete.on.disable",
)
REMOTE_STORAGE_ENABLE: Option[bool] = topic(
    "remote.storage.enable",
    Only(Boolean(), False, _NO_TIERING),
    False,
    "Always false: there is no tiered storage. `penstock pipeline archive` copies old records to other storage.",
    broker="remote.log.storage.system.enable",
)
RETENTION_BYTES: Option[int] = topic(
    "retention.bytes",
    Integer(-1, LONG_MAX),
    -1,
    "Maximum size of a partition. Above it the oldest segments are deleted. -1: no limit.",
    broker="log.retention.bytes",
)
RETENTION_MS: Option[int] = topic(
    "retention.ms",
    Integer(-1, LONG_MAX),
    1_209_600_000,
    "Maximum age of records. Segments whose newest record is older are deleted. -1: no limit.",
    broker="log.retention.ms",
)
SEGMENT_BYTES: Option[int] = topic(
    "segment.bytes",
    Integer(1_024, INT_MAX),
    1_073_741_824,
    "Size at which a segment is closed and a new one begun. Retention and compaction work on closed segments.",
    broker="log.segment.bytes",
)
SEGMENT_INDEX_BYTES: Option[int] = topic(
    "segment.index.bytes",
    Integer(4, INT_MAX),
    10_485_760,
    "Accepted for Kafka's tools, without effect: an index is as large as its segment needs.",
    broker="log.index.size.max.bytes",
)
SEGMENT_JITTER_MS: Option[int] = topic(
    "segment.jitter.ms",
    Only(Integer(), 0),
    0,
    "Always 0: segments are closed when they are due.",
    broker="log.roll.jitter.ms",
)
SEGMENT_MS: Option[int] = topic(
    "segment.ms",
    Integer(1, LONG_MAX),
    604_800_000,
    "Age of its first record at which a segment is closed, even if it is not full, so that retention and "
    "compaction can process it.",
    broker="log.roll.ms",
)
UNCLEAN_LEADER_ELECTION_ENABLE: Option[bool] = topic(
    "unclean.leader.election.enable",
    Only(Boolean(), False),
    False,
    "Always false: a leader that may lack acknowledged records is elected only at an operator's request "
    "(ElectLeaders), or when the log of the only in-sync replica is gone.",
    broker="unclean.leader.election.enable",
)
VIEW_FILTER: Option[str] = topic(
    "view.filter",
    MaybeText(),
    "",
    "CEL expression over `key`, `value`, `headers`, `timestamp`, `size`, `partition`, `offset`, `json` and "
    "`route(pattern)`. Consumers of a view get the records for which it is true (docs/views.md). Without effect "
    "as a default of the broker.",
    broker="view.filter",
)
VIEW_OF: Option[str] = topic(
    "view.of",
    MaybeText(),
    "",
    "Topic that this topic is a view of. A view has no records of its own: consumers get the records of that "
    "topic that match `view.filter`, at their offsets. Set when the view is created, together with "
    "`view.filter`, and cannot be changed. Without effect as a default of the broker.",
    broker="view.of",
)
VIEW_SHARED: Option[bool] = topic(
    "view.shared",
    Boolean(),
    False,
    "Whether a view is removed when it has had no reader for ten minutes and no group has committed offsets in it. "
    "Set by `Consumer(filter=...)` and `filter=` over HTTP, which share views of the same topic and filter. "
    "Without effect as a default of the broker.",
    broker="view.shared",
)

TOPIC_OPTIONS: Mapping[str, Option[Any]] = table(TOPICS.options)
