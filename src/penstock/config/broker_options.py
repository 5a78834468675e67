"""Every setting of a broker that is not the default of a topic's. Kafka's names for Kafka's settings."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from penstock.config.address import Address, parse_address
from penstock.config.gateway_options import GATEWAY
from penstock.config.group_options import CONSUMER_GROUPS
from penstock.config.options import Group, Option, table
from penstock.config.topic_options import TOPIC_DEFAULTS
from penstock.config.transaction_options import TRANSACTIONS
from penstock.config.types import INT_MAX, LONG_MAX, Boolean, Choice, Integer, Optional, Parsed, Text


class EventLoop(StrEnum):
    AUTO = "auto"
    UVLOOP = "uvloop"
    ASYNCIO = "asyncio"


class ReplicaSelector(StrEnum):
    """Kafka's names."""

    LEADER = "org.apache.kafka.common.replica.LeaderSelector"
    RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class LoggingLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LoggingFormat(StrEnum):
    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


IDENTITY = Group("Identity and addresses")
NODE_ID: Option[int] = IDENTITY.option(
    "node.id",
    Integer(0, INT_MAX),
    1,
    "The broker's number, its own within the cluster. A data directory keeps the number it was made with.",
)
LOG_DIR: Option[str] = IDENTITY.option(
    "log.dir",
    Text(),
    "data",
    "The directory that holds everything the broker stores. One broker at a time may use it.",
)
HOST: Option[str] = IDENTITY.option(
    "host",
    Text(),
    "127.0.0.1",
    "The address to listen on, for Kafka clients and for HTTP; `0.0.0.0` is every address of the machine.",
)
PORT: Option[int] = IDENTITY.option(
    "port", Integer(0, 65_535), 9_092, "The port for Kafka clients; 0 takes a free one."
)
ADVERTISED_LISTENERS: Option[Address | None] = IDENTITY.option(
    "advertised.listeners",
    Optional(Parsed(parse_address, "HOST:PORT or PLAINTEXT://HOST:PORT")),
    None,
    "The address that clients are told to connect to, where it differs from `host` and `port`: behind a "
    "container's port mapping or a proxy. Left empty with `host` 0.0.0.0, clients are told `localhost`.",
)
HTTP_PORT: Option[int] = IDENTITY.option(
    "http.port",
    Integer(-1, 65_535),
    8_080,
    "The port for HTTP: the gateway, /metrics and /health; 0 takes a free one, -1 is none.",
)
BROKER_RACK: Option[str | None] = IDENTITY.option(
    "broker.rack",
    Optional(Text()),
    None,
    "Where the broker stands. Copies of a partition are spread over racks.",
)

CLUSTER = Group("Cluster")
ZOOKEEPER_CONNECT: Option[str | None] = CLUSTER.option(
    "zookeeper.connect",
    Optional(Text()),
    None,
    "The ZooKeeper that the brokers of a cluster agree through: `host:port,host:port/chroot`, the same for all. "
    "Without it the broker is alone and keeps its metadata in its data directory.",
)
ZOOKEEPER_SESSION_TIMEOUT_MS: Option[int] = CLUSTER.option(
    "zookeeper.session.timeout.ms",
    Integer(1_000, 600_000),
    6_000,
    "How long ZooKeeper waits for a broker that it does not hear of before it counts as gone.",
)
ZOOKEEPER_DIGEST: Option[str | None] = CLUSTER.option(
    "zookeeper.digest",
    Optional(Text()),
    None,
    "`user:password` for ZooKeeper. All that brokers write can then be read and changed by this user alone.",
    sensitive=True,
)
AUTO_LEADER_REBALANCE_ENABLE: Option[bool] = CLUSTER.option(
    "auto.leader.rebalance.enable",
    Boolean(),
    True,
    "Whether a broker that is back and in sync leads again what it is the first replica of.",
    dynamic=True,
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Option[int] = CLUSTER.option(
    "leader.imbalance.check.interval.seconds",
    Integer(1, INT_MAX),
    300,
    "How often the controller looks for such brokers.",
    dynamic=True,
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: Option[int] = CLUSTER.option(
    "leader.imbalance.per.broker.percentage",
    Integer(0, 100),
    10,
    "How much of what a broker is the first replica of, in per cent, others may lead before that is changed.",
    dynamic=True,
)

TOPIC_RULES = Group("Topics and partitions")
AUTO_CREATE_TOPICS_ENABLE: Option[bool] = TOPIC_RULES.option(
    "auto.create.topics.enable",
    Boolean(),
    True,
    "Whether a topic that a producer or consumer asks for is created when it does not exist.",
    dynamic=True,
)
DEFAULT_REPLICATION_FACTOR: Option[int] = TOPIC_RULES.option(
    "default.replication.factor",
    Integer(1, 32_767),
    1,
    "The copies of each partition of a topic that is created without saying how many. Unless set it is 3 while three "
    "brokers or more are there.",
    dynamic=True,
)
DELETE_TOPIC_ENABLE: Option[bool] = TOPIC_RULES.option(
    "delete.topic.enable", Boolean(), True, "Whether topics may be deleted.", dynamic=True
)
MAX_PARTITIONS_PER_BROKER: Option[int] = TOPIC_RULES.option(
    "max.partitions.per.broker",
    Integer(1, INT_MAX),
    20_000,
    "Creating topics or partitions beyond this many on the broker is refused with POLICY_VIOLATION.",
    dynamic=True,
)
MAX_PARTITIONS_PER_TOPIC: Option[int] = TOPIC_RULES.option(
    "max.partitions.per.topic",
    Integer(1, INT_MAX),
    10_000,
    "A topic with more partitions than this is refused with INVALID_PARTITIONS.",
    dynamic=True,
)
MAX_TOPICS_PER_REQUEST: Option[int] = TOPIC_RULES.option(
    "max.topics.per.request",
    Integer(1, INT_MAX),
    2_000,
    "A request to create, delete or alter more topics than this is refused with POLICY_VIOLATION.",
    dynamic=True,
)
NUM_PARTITIONS: Option[int] = TOPIC_RULES.option(
    "num.partitions",
    Integer(1, INT_MAX),
    1,
    "The partitions of a topic that is created without saying how many.",
    dynamic=True,
)

CONNECTIONS = Group("Connections and requests")
CONNECTION_MAX_IN_FLIGHT_BYTES: Option[int] = CONNECTIONS.option(
    "connection.max.in.flight.bytes",
    Integer(1, LONG_MAX),
    33_554_432,
    "While more than this of answers waits to be taken by the client, nothing more is read from its "
    "connection.",
)
CONNECTION_MAX_IN_FLIGHT_REQUESTS: Option[int] = CONNECTIONS.option(
    "connection.max.in.flight.requests",
    Integer(1, INT_MAX),
    128,
    "While this many requests of one connection are unanswered, nothing more is read from it.",
)
CONNECTION_WRITE_TIMEOUT_MS: Option[int] = CONNECTIONS.option(
    "connection.write.timeout.ms",
    Integer(1, LONG_MAX),
    60_000,
    "A connection whose peer takes no byte of a waiting answer for this long is closed.",
)
CONNECTIONS_MAX_IDLE_MS: Option[int] = CONNECTIONS.option(
    "connections.max.idle.ms",
    Integer(1, LONG_MAX),
    600_000,
    "A connection without a request for this long is closed.",
)
MAX_CONNECTION_CREATION_RATE: Option[int] = CONNECTIONS.option(
    "max.connection.creation.rate",
    Integer(1, INT_MAX),
    2_000,
    "The most connections accepted in a second; further ones wait.",
)
MAX_CONNECTIONS: Option[int] = CONNECTIONS.option(
    "max.connections",
    Integer(1, INT_MAX),
    12_000,
    "The most connections at a time; further ones are closed at once. Each needs an open file of the "
    "process's limit.",
)
MAX_CONNECTIONS_PER_IP: Option[int] = CONNECTIONS.option(
    "max.connections.per.ip",
    Integer(1, INT_MAX),
    11_000,
    "The most connections at a time from one address; further ones are closed at once.",
)
QUEUED_MAX_REQUEST_BYTES: Option[int] = CONNECTIONS.option(
    "queued.max.request.bytes",
    Integer(1, LONG_MAX),
    268_435_456,
    "While the unanswered requests of all connections together are larger than this, connections that hold "
    "more than their share of it are not read from, so that the broker's memory stays bounded.",
)
REQUEST_RECEIVE_TIMEOUT_MS: Option[int] = CONNECTIONS.option(
    "request.receive.timeout.ms",
    Integer(1, LONG_MAX),
    60_000,
    "A connection that has begun to send a request and then sends no byte of it for this long is closed.",
)
SOCKET_REQUEST_MAX_BYTES: Option[int] = CONNECTIONS.option(
    "socket.request.max.bytes",
    Integer(1_024, INT_MAX),
    104_857_600,
    "The largest request that is read; a connection that announces a larger one is closed.",
)
SOCKET_SEND_BUFFER_BYTES: Option[int] = CONNECTIONS.option(
    "socket.send.buffer.bytes",
    Integer(-1, INT_MAX),
    262_144,
    "The system's send buffer of each connection; -1 leaves it to the system. A small one keeps what is sent in the "
    "processor's cache; consumers far away (a long round trip at a high rate) need a larger one.",
)

FETCHING = Group("Fetching")
FETCH_MAX_BYTES: Option[int] = FETCHING.option(
    "fetch.max.bytes",
    Integer(1_024, INT_MAX),
    57_671_680,
    "The most record bytes in one answer to a Fetch, whatever the consumer asks for; a first batch larger "
    "than this is still sent whole.",
    dynamic=True,
)
FETCH_MAX_WAIT_MS: Option[int] = FETCHING.option(
    "fetch.max.wait.ms",
    Integer(0, INT_MAX),
    60_000,
    "The longest a Fetch waits for records, whatever the consumer asks for.",
    dynamic=True,
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS: Option[int] = FETCHING.option(
    "max.incremental.fetch.session.cache.slots",
    Integer(0, INT_MAX),
    10_000,
    "The most fetch sessions remembered; further consumers send their whole list of partitions each time.",
)
MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS: Option[int] = FETCHING.option(
    "min.incremental.fetch.session.eviction.ms",
    Integer(0, LONG_MAX),
    120_000,
    "A fetch session unused for this long may be forgotten in favour of a new one.",
)
MAX_REQUEST_PARTITION_SIZE_LIMIT: Option[int] = FETCHING.option(
    "max.request.partition.size.limit",
    Integer(1, INT_MAX),
    2_000,
    "The most partitions in one answer to DescribeTopicPartitions; the client asks again for the rest.",
    dynamic=True,
)

STORAGE = Group("Storage")
LOG_CLEANER_BACKOFF_MS: Option[int] = STORAGE.option(
    "log.cleaner.backoff.ms",
    Integer(1, LONG_MAX),
    15_000,
    "How often the broker looks for compacted logs that are due.",
    dynamic=True,
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE: Option[int] = STORAGE.option(
    "log.cleaner.dedupe.buffer.size",
    Integer(1_048_576, LONG_MAX),
    134_217_728,
    "The most memory one compaction uses to remember keys; a log with more keys is compacted in several "
    "passes.",
    dynamic=True,
)
LOG_CLEANER_ENABLE: Option[bool] = STORAGE.option(
    "log.cleaner.enable", Boolean(), True, "Whether compacted topics are compacted.", dynamic=True
)
LOG_DIR_MIN_FREE_BYTES: Option[int] = STORAGE.option(
    "log.dir.min.free.bytes",
    Integer(0, LONG_MAX),
    268_435_456,
    "While less than this is free on the data directory's disk, writes are refused with "
    "KAFKA_STORAGE_ERROR; reads go on, and writes resume by themselves.",
    dynamic=True,
)
LOG_FLUSH_CHECKPOINT_BYTES: Option[int] = STORAGE.option(
    "log.flush.checkpoint.bytes",
    Integer(1, LONG_MAX),
    134_217_728,
    "A log's recovery point is also moved after this many new bytes, so that a crash leaves little to check.",
    dynamic=True,
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS: Option[int] = STORAGE.option(
    "log.flush.offset.checkpoint.interval.ms",
    Integer(1, LONG_MAX),
    60_000,
    "How often the recovery points of logs with new records are moved; what lies after them is checked "
    "after a crash.",
    dynamic=True,
)
LOG_SCRUB_BYTES_PER_SECOND: Option[int] = STORAGE.option(
    "log.scrub.bytes.per.second",
    Integer(0, LONG_MAX),
    8_388_608,
    "The most bytes a second that the background scrub reads to verify the CRCs of stored batches; 0 switches it off. "
    "It takes a twentieth of one processor at most.",
    dynamic=True,
)
LOG_SCRUB_INTERVAL_MS: Option[int] = STORAGE.option(
    "log.scrub.interval.ms",
    Integer(0, LONG_MAX),
    604_800_000,
    "How often the background scrub begins to read all logs of the broker; the first time ten minutes after a start. 0 "
    "switches it off.",
    dynamic=True,
)
LOG_OPEN_FILES_MAX: Option[int] = STORAGE.option(
    "log.open.files.max",
    Integer(16, INT_MAX),
    7_000,
    "The most segment files kept open at a time; the least recently used are closed and reopened when "
    "needed.",
)
LOG_RETENTION_CHECK_INTERVAL_MS: Option[int] = STORAGE.option(
    "log.retention.check.interval.ms",
    Integer(1, LONG_MAX),
    300_000,
    "How often the broker looks for segments that retention removes.",
    dynamic=True,
)
MAX_DECOMPRESSED_BYTES: Option[int] = STORAGE.option(
    "max.decompressed.bytes",
    Integer(1_024, INT_MAX),
    67_108_864,
    "The most that one compressed batch may grow to where the broker has to look inside (compacted topics); "
    "a larger one is refused with INVALID_RECORD.",
    dynamic=True,
)
MAX_PRODUCERS_PER_PARTITION: Option[int] = STORAGE.option(
    "max.producers.per.partition",
    Integer(1, INT_MAX),
    20_000,
    "The most idempotent producers a partition remembers; the longest silent are forgotten first.",
)
PRODUCER_ID_EXPIRATION_MS: Option[int] = STORAGE.option(
    "producer.id.expiration.ms",
    Integer(1, LONG_MAX),
    86_400_000,
    "How long a partition remembers an idempotent producer that has stopped writing, to recognise its "
    "retries.",
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: Option[int] = STORAGE.option(
    "replica.high.watermark.checkpoint.interval.ms",
    Integer(1, LONG_MAX),
    5_000,
    "How often the high watermarks are written to disk.",
)

REPLICATION = Group("Replication")
CLUSTER_SECRET: Option[str | None] = REPLICATION.option(
    "cluster.secret",
    Optional(Text()),
    None,
    "What the brokers of a cluster know and nobody else does: by it they prove to each other who they are. The same on "
    "all of them. Unless set it is one that the first broker drew and keeps in ZooKeeper, for whoever may read there.",
    sensitive=True,
)
LEADER_REPLICATION_THROTTLED_RATE: Option[int] = REPLICATION.option(
    "leader.replication.throttled.rate",
    Integer(1, LONG_MAX),
    LONG_MAX,
    "The most bytes in a second that the broker sends to followers that catch up, of the replicas named in "
    "`leader.replication.throttled.replicas`. Those in sync are never held back.",
    dynamic=True,
)
FOLLOWER_REPLICATION_THROTTLED_RATE: Option[int] = REPLICATION.option(
    "follower.replication.throttled.rate",
    Integer(1, LONG_MAX),
    LONG_MAX,
    "The most bytes in a second that the broker copies while it catches up, for the replicas named in "
    "`follower.replication.throttled.replicas`.",
    dynamic=True,
)
REPLICA_FETCH_MAX_BYTES: Option[int] = REPLICATION.option(
    "replica.fetch.response.max.bytes",
    Integer(1, INT_MAX),
    10 * 1024 * 1024,
    "The most bytes a follower asks for at a time; a batch that is larger still comes.",
)
REPLICA_FETCH_WAIT_MAX_MS: Option[int] = REPLICATION.option(
    "replica.fetch.wait.max.ms",
    Integer(1, INT_MAX),
    500,
    "How long a leader keeps a follower's fetch waiting when there is nothing new.",
)
REPLICA_LAG_TIME_MAX_MS: Option[int] = REPLICATION.option(
    "replica.lag.time.max.ms",
    Integer(1, LONG_MAX),
    10_000,
    "A follower that has lacked something for longer than this is no longer in sync.",
)
REPLICA_SELECTOR_CLASS: Option[ReplicaSelector] = REPLICATION.option(
    "replica.selector.class",
    Choice(ReplicaSelector),
    ReplicaSelector.LEADER,
    "Who serves consumers: the leader alone, or, for those that name their rack (`client.rack`), an in-sync follower "
    "in that rack (KIP-392). The same on all brokers.",
    dynamic=True,
)
REPLICA_SOCKET_TIMEOUT_MS: Option[int] = REPLICATION.option(
    "replica.socket.timeout.ms",
    Integer(1, INT_MAX),
    30_000,
    "How long a follower waits for an answer of its leader before it connects anew.",
)

PROCESS = Group("Process")
EVENT_LOOP: Option[EventLoop] = PROCESS.option(
    "event.loop",
    Choice(EventLoop),
    EventLoop.AUTO,
    "`uvloop` is the fast event loop, `asyncio` Python's own; `auto` is uvloop where it is installed.",
)
LOGGING_FORMAT: Option[LoggingFormat] = PROCESS.option(
    "logging.format",
    Choice(LoggingFormat),
    LoggingFormat.AUTO,
    "How log lines are written to standard error: `json` objects, `text` for people; `auto` is text on a "
    "terminal.",
)
LOGGING_LEVEL: Option[LoggingLevel] = PROCESS.option(
    "logging.level",
    Choice(LoggingLevel),
    LoggingLevel.INFO,
    "The least severe log lines that are written.",
)
METRICS_MAX_GROUPS: Option[int] = PROCESS.option(
    "metrics.max.groups",
    Integer(0, INT_MAX),
    500,
    "The most consumer groups whose lag is among the metrics, the first by name; that of others is not shown.",
)
METRICS_MAX_TOPICS: Option[int] = PROCESS.option(
    "metrics.max.topics",
    Integer(0, INT_MAX),
    1_000,
    "The most topics with metrics of their own; the others are summed up as one.",
)
SHUTDOWN_TIMEOUT_MS: Option[int] = PROCESS.option(
    "shutdown.timeout.ms",
    Integer(0, INT_MAX),
    10_000,
    "How long a stop waits for requests in flight to be answered before it closes their connections.",
)

BROKER_GROUPS = (
    IDENTITY,
    CLUSTER,
    TOPIC_RULES,
    CONNECTIONS,
    FETCHING,
    GATEWAY,
    CONSUMER_GROUPS,
    TRANSACTIONS,
    STORAGE,
    REPLICATION,
    PROCESS,
    TOPIC_DEFAULTS,
)
BROKER_OPTIONS: Mapping[str, Option[Any]] = table(
    option for group in BROKER_GROUPS for option in group.options
)
