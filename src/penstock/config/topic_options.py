"""Every setting of a topic, and with it the broker's setting that holds its default."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from penstock.config.key_layouts import NO_LAYOUTS, KeyLayouts, Layouts
from penstock.config.options import Group, Option, table
from penstock.config.partition_offsets import NO_OFFSETS, OffsetsByPartition, PartitionOffsets
from penstock.config.replica_lists import NO_REPLICAS, ReplicaList, Replicas
from penstock.config.types import (
    INT_MAX,
    LONG_MAX,
    Boolean,
    Choice,
    Fraction,
    Integer,
    ListOf,
    Only,
    ValueType,
)

T = TypeVar("T")


class CleanupPolicy(StrEnum):
    DELETE = "delete"
    COMPACT = "compact"


class CompressionType(StrEnum):
    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Durability(StrEnum):
    AUTO = "auto"
    OS = "os"
    FSYNC = "fsync"


class MessageTimestampType(StrEnum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


_NO_TIERING = "there is no tiered storage, `penstock pipeline archive` copies old records to other storage"

TOPICS = Group("Topic settings")
TOPIC_DEFAULTS = Group("Defaults for topics")


def topic(name: str, type: ValueType[T], default: T, doc: str, *, broker: str) -> Option[T]:
    """Declare a topic's setting and the broker's setting `broker` that is its default."""
    synonym = TOPIC_DEFAULTS.option(
        broker,
        type,
        default,
        f"The default of `{name}` for topics that do not set it themselves.",
        dynamic=True,
    )
    option = Option(name, type, default, doc, dynamic=True, synonym=synonym)
    TOPICS.options.append(option)
    return option


ARCHIVE_OFFSETS: Option[OffsetsByPartition] = topic(
    "archive.offsets",
    PartitionOffsets(),
    NO_OFFSETS,
    "The offset up to which each partition is archived. `penstock pipeline archive` keeps it up to date where "
    "`archive.required` is set.",
    broker="archive.offsets",
)
ARCHIVE_REQUIRED: Option[bool] = topic(
    "archive.required",
    Boolean(),
    False,
    "Records are not removed, by retention, compaction or deletion, before they are archived (`archive.offsets`), "
    "however old or many they are.",
    broker="archive.required",
)
CLEANUP_POLICY: Option[tuple[CleanupPolicy, ...]] = topic(
    "cleanup.policy",
    ListOf(CleanupPolicy, may_be_empty=True),
    (CleanupPolicy.DELETE,),
    "What becomes of old records: `delete` removes whole segments by age and size, `compact` keeps the "
    "newest record of each key, `compact,delete` does both; with neither of them all are kept.",
    broker="log.cleanup.policy",
)
COMPRESSION_GZIP_LEVEL: Option[int] = topic(
    "compression.gzip.level",
    Integer(-1, 9),
    -1,
    "Kept for Kafka's tools, without effect: the broker never recompresses a batch.",
    broker="compression.gzip.level",
)
COMPRESSION_LZ4_LEVEL: Option[int] = topic(
    "compression.lz4.level",
    Integer(1, 17),
    9,
    "Kept for Kafka's tools, without effect: the broker never recompresses a batch.",
    broker="compression.lz4.level",
)
COMPRESSION_TYPE: Option[CompressionType] = topic(
    "compression.type",
    Choice(CompressionType),
    CompressionType.PRODUCER,
    "Kept for Kafka's tools, without effect: batches are stored and served exactly as the producer compressed them, "
    "and the broker never recompresses a batch.",
    broker="compression.type",
)
COMPRESSION_ZSTD_LEVEL: Option[int] = topic(
    "compression.zstd.level",
    Integer(-131_072, 22),
    3,
    "Kept for Kafka's tools, without effect: the broker never recompresses a batch.",
    broker="compression.zstd.level",
)
DELETE_RETENTION_MS: Option[int] = topic(
    "delete.retention.ms",
    Integer(0, LONG_MAX),
    86_400_000,
    "How long a compacted topic keeps a tombstone (a record without a value) after it was compacted, so that "
    "readers who started before learn of the deletion.",
    broker="log.cleaner.delete.retention.ms",
)
DURABILITY: Option[Durability] = topic(
    "durability",
    Choice(Durability),
    Durability.AUTO,
    "When an acks=all write is acknowledged: `auto` once two machines have it or, where there is only one, "
    "once it is on its disk; `fsync` once it is on the disk of every in-sync replica; `os` once it is in "
    "the operating system's memory, which a power failure can take back.",
    broker="durability",
)
FILE_DELETE_DELAY_MS: Option[int] = topic(
    "file.delete.delay.ms",
    Integer(0, LONG_MAX),
    60_000,
    "Kept for Kafka's tools, without effect: a deleted segment is removed when its last reader is done with it.",
    broker="log.segment.delete.delay.ms",
)
FOLLOWER_REPLICATION_THROTTLED_REPLICAS: Option[ReplicaList] = topic(
    "follower.replication.throttled.replicas",
    Replicas(),
    NO_REPLICAS,
    "The replicas that copy no faster than their brokers' `follower.replication.throttled.rate` while they catch up.",
    broker="follower.replication.throttled.replicas",
)
FLUSH_MESSAGES: Option[int] = topic(
    "flush.messages",
    Only(Integer(), LONG_MAX),
    LONG_MAX,
    "Nothing is flushed by count or by time; `durability` says when a write is acknowledged.",
    broker="log.flush.interval.messages",
)
FLUSH_MS: Option[int] = topic(
    "flush.ms",
    Only(Integer(), LONG_MAX),
    LONG_MAX,
    "Nothing is flushed by count or by time; `durability` says when a write is acknowledged.",
    broker="log.flush.interval.ms",
)
INDEX_BY_KEY: Option[bool] = topic(
    "index.by.key",
    Boolean(),
    False,
    "Whether the records of one key are found without reading the others, as the gateway's mailboxes need. A segment "
    "is closed at 262,144 records then, a broker keeps 24 bytes in memory for each record of the newest segment, and "
    "26 bytes on disk for each of the others.",
    broker="log.index.by.key",
)
INDEX_INTERVAL_BYTES: Option[int] = topic(
    "index.interval.bytes",
    Integer(1, INT_MAX),
    4_096,
    "A segment's index gets one entry for at least this many bytes of records. Smaller finds offsets with "
    "less reading and makes a larger index.",
    broker="log.index.interval.bytes",
)
INDEX_KEY_LAYOUTS: Option[KeyLayouts] = topic(
    "index.key.layouts",
    Layouts(),
    NO_LAYOUTS,
    "The partition counts by which the gateway has spread keys, each with the time from which on, as in "
    "`12@0,24@1767225600000`: where to look for what was written before partitions were added. The gateway keeps it; "
    "leave it alone.",
    broker="log.index.key.layouts",
)
LEADER_REPLICATION_THROTTLED_REPLICAS: Option[ReplicaList] = topic(
    "leader.replication.throttled.replicas",
    Replicas(),
    NO_REPLICAS,
    "The leaders, as partition and broker, that send no more than their brokers' `leader.replication.throttled.rate` "
    "to followers that catch up.",
    broker="leader.replication.throttled.replicas",
)
LOCAL_RETENTION_BYTES: Option[int] = topic(
    "local.retention.bytes",
    Only(Integer(-2, LONG_MAX), -2, _NO_TIERING),
    -2,
    "Always -2, the same as `retention.bytes`: there is no tiered storage, so no record is kept elsewhere.",
    broker="log.local.retention.bytes",
)
LOCAL_RETENTION_MS: Option[int] = topic(
    "local.retention.ms",
    Only(Integer(-2, LONG_MAX), -2, _NO_TIERING),
    -2,
    "Always -2, the same as `retention.ms`: there is no tiered storage, so no record is kept elsewhere.",
    broker="log.local.retention.ms",
)
MAX_COMPACTION_LAG_MS: Option[int] = topic(
    "max.compaction.lag.ms",
    Integer(1, LONG_MAX),
    LONG_MAX,
    "A record of a compacted topic is looked at by compaction at the latest this long after it was written, "
    "however little there is to gain.",
    broker="log.cleaner.max.compaction.lag.ms",
)
MAX_MESSAGE_BYTES: Option[int] = topic(
    "max.message.bytes",
    Integer(0, INT_MAX),
    1_048_588,
    "The largest record batch (as sent, after compression) that is accepted; a larger one is refused with "
    "MESSAGE_TOO_LARGE.",
    broker="message.max.bytes",
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS: Option[int] = topic(
    "message.timestamp.after.max.ms",
    Integer(0, LONG_MAX),
    3_600_000,
    "A batch whose newest timestamp is more than this ahead of the broker's clock is refused with "
    "INVALID_TIMESTAMP, so that a wrong clock cannot defeat retention. Applies to CreateTime.",
    broker="log.message.timestamp.after.max.ms",
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Option[int] = topic(
    "message.timestamp.before.max.ms",
    Integer(0, LONG_MAX),
    LONG_MAX,
    "A batch with a timestamp more than this behind the broker's clock is refused with INVALID_TIMESTAMP. "
    "Applies to CreateTime.",
    broker="log.message.timestamp.before.max.ms",
)
MESSAGE_TIMESTAMP_TYPE: Option[MessageTimestampType] = topic(
    "message.timestamp.type",
    Choice(MessageTimestampType),
    MessageTimestampType.CREATE_TIME,
    "The time a record carries: `CreateTime` as the producer set it, `LogAppendTime` when the broker stored "
    "it.",
    broker="log.message.timestamp.type",
)
MIN_CLEANABLE_DIRTY_RATIO: Option[float] = topic(
    "min.cleanable.dirty.ratio",
    Fraction(),
    0.5,
    "A compacted log is compacted when at least this share of its bytes has been written since the last "
    "time.",
    broker="log.cleaner.min.cleanable.ratio",
)
MIN_COMPACTION_LAG_MS: Option[int] = topic(
    "min.compaction.lag.ms",
    Integer(0, LONG_MAX),
    0,
    "A record of a compacted topic is left alone by compaction for at least this long.",
    broker="log.cleaner.min.compaction.lag.ms",
)
MIN_INSYNC_REPLICAS: Option[int] = topic(
    "min.insync.replicas",
    Integer(1, INT_MAX),
    1,
    "An acks=all write is refused with NOT_ENOUGH_REPLICAS while fewer replicas than this are in sync. Unless the "
    "broker's is set, a topic that is made with three copies or more gets 2.",
    broker="min.insync.replicas",
)
PREALLOCATE: Option[bool] = topic(
    "preallocate",
    Only(Boolean(), False),
    False,
    "Segment files grow as they are written.",
    broker="log.preallocate",
)
REMOTE_LOG_COPY_DISABLE: Option[bool] = topic(
    "remote.log.copy.disable",
    Boolean(),
    False,
    "Kept for Kafka's tools, without effect: there is no tiered storage.",
    broker="remote.log.copy.disable",
)
REMOTE_LOG_DELETE_ON_DISABLE: Option[bool] = topic(
    "remote.log.delete.on.disable",
    Boolean(),
    False,
    "Kept for Kafka's tools, without effect: there is no tiered storage.",
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
    "A partition larger than this loses its oldest segments. -1: no limit.",
    broker="log.retention.bytes",
)
RETENTION_MS: Option[int] = topic(
    "retention.ms",
    Integer(-1, LONG_MAX),
    1_209_600_000,
    "Segments whose newest record is older than this are removed. -1: kept for ever.",
    broker="log.retention.ms",
)
SEGMENT_BYTES: Option[int] = topic(
    "segment.bytes",
    Integer(1_024, INT_MAX),
    1_073_741_824,
    "A segment file is closed and a new one begun at this size. Retention and compaction work on closed "
    "segments.",
    broker="log.segment.bytes",
)
SEGMENT_INDEX_BYTES: Option[int] = topic(
    "segment.index.bytes",
    Integer(4, INT_MAX),
    10_485_760,
    "Kept for Kafka's tools, without effect: an index is as large as its segment needs.",
    broker="log.index.size.max.bytes",
)
SEGMENT_JITTER_MS: Option[int] = topic(
    "segment.jitter.ms",
    Only(Integer(), 0),
    0,
    "Segments are closed when they are due.",
    broker="log.roll.jitter.ms",
)
SEGMENT_MS: Option[int] = topic(
    "segment.ms",
    Integer(1, LONG_MAX),
    604_800_000,
    "A segment is closed when its first record is older than this, even if it is not full, so that "
    "retention and compaction can get at it.",
    broker="log.roll.ms",
)
UNCLEAN_LEADER_ELECTION_ENABLE: Option[bool] = topic(
    "unclean.leader.election.enable",
    Only(Boolean(), False),
    False,
    "A leader that may lack acknowledged records is chosen when somebody asks for it (ElectLeaders), never by itself.",
    broker="unclean.leader.election.enable",
)

TOPIC_OPTIONS: Mapping[str, Option[Any]] = table(TOPICS.options)
