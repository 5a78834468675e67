"""Broker options, except the defaults of topic options. Kafka's options have Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from penstock.config.address import Address, parse_address
from penstock.config.gateway_options import GATEWAY
from penstock.config.group_options import CONSUMER_GROUPS
from penstock.config.options import Option, OptionGroup, table
from penstock.config.topic_options import TOPIC_DEFAULTS
from penstock.config.transaction_options import TRANSACTIONS
from penstock.config.types import INT_MAX, LONG_MAX, Boolean, Choice, Integer, Optional, Parsed, Text


class EventLoop(StrEnum):
    AUTO = "auto"
    UVLOOP = "uvloop"
    ASYNCIO = "asyncio"


class ReplicaSelector(StrEnum):
    """Replica selectors by Kafka's class names."""

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


IDENTITY = OptionGroup("Identity and addresses")
NODE_ID: Option[int] = IDENTITY.option(
    "node.id",
    Integer(0, INT_MAX),
    1,
    "Id of the broker, unique in the cluster. A data directory belongs to the id it was created with.",
)
LOG_DIR: Option[str] = IDENTITY.option(
    "log.dir",
    Text(),
    "data",
    "Directory for all data of the broker. Only one broker may use it at a time.",
)
HOST: Option[str] = IDENTITY.option(
    "host",
    Text(),
    "127.0.0.1",
    "Address to listen on, for Kafka clients and for HTTP. `0.0.0.0` listens on all addresses of the machine.",
)
PORT: Option[int] = IDENTITY.option(
    "port", Integer(0, 65_535), 9_092, "Port for Kafka clients. 0 picks a free port."
)
ADVERTISED_LISTENERS: Option[Address | None] = IDENTITY.option(
    "advertised.listeners",
    Optional(Parsed(parse_address, "HOST:PORT or PLAINTEXT://HOST:PORT")),
    None,
    "Address that clients are told to connect to, if it differs from `host` and `port`, for example behind a "
    "container's port mapping or a proxy. If it is empty and `host` is 0.0.0.0, clients are told `localhost`.",
)
HTTP_PORT: Option[int] = IDENTITY.option(
    "http.port",
    Integer(-1, 65_535),
    8_080,
    "Port for HTTP: the gateway, /metrics and /health. 0 picks a free port, -1 disables HTTP.",
)
BROKER_RACK: Option[str | None] = IDENTITY.option(
    "broker.rack",
    Optional(Text()),
    None,
    "Rack of the broker. The replicas of a partition are spread over racks.",
)

CLUSTER = OptionGroup("Cluster")
ZOOKEEPER_CONNECT: Option[str | None] = CLUSTER.option(
    "zookeeper.connect",
    Optional(Text()),
    None,
    "ZooKeeper of the cluster, as `host:port,host:port/chroot`, with the same value on all brokers. Without "
    "it the broker runs alone and keeps its metadata in its data directory.",
)
ZOOKEEPER_SESSION_TIMEOUT_MS: Option[int] = CLUSTER.option(
    "zookeeper.session.timeout.ms",
    Integer(1_000, 600_000),
    6_000,
    "Session timeout: ZooKeeper expires the session of a broker that it has not heard from for this long, and "
    "the broker leaves the cluster.",
)
ZOOKEEPER_DIGEST: Option[str | None] = CLUSTER.option(
    "zookeeper.digest",
    Optional(Text()),
    None,
    "Credentials for ZooKeeper, as `user:password`. Only this user can then read and change the nodes that "
    "brokers create.",
    sensitive=True,
)
AUTO_LEADER_REBALANCE_ENABLE: Option[bool] = CLUSTER.option(
    "auto.leader.rebalance.enable",
    Boolean(),
    True,
    "Whether the controller periodically returns leadership to preferred leaders (the first replica of a "
    "partition) that are in sync again.",
    dynamic=True,
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Option[int] = CLUSTER.option(
    "leader.imbalance.check.interval.seconds",
    Integer(1, INT_MAX),
    300,
    "Interval at which the controller checks whether preferred leaders lead their partitions "
    "(`auto.leader.rebalance.enable`).",
    dynamic=True,
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: Option[int] = CLUSTER.option(
    "leader.imbalance.per.broker.percentage",
    Integer(0, 100),
    10,
    "Percentage of the partitions with this broker as preferred leader that other brokers may lead. Above it "
    "the controller elects the preferred leader.",
    dynamic=True,
)

TOPIC_RULES = OptionGroup("Topics and partitions")
AUTO_CREATE_TOPICS_ENABLE: Option[bool] = TOPIC_RULES.option(
    "auto.create.topics.enable",
    Boolean(),
    True,
    "Whether a topic that does not exist is created when a producer or consumer asks for it.",
    dynamic=True,
)
DEFAULT_REPLICATION_FACTOR: Option[int] = TOPIC_RULES.option(
    "default.replication.factor",
    Integer(1, 32_767),
    1,
    "Replication factor of topics that are created without one. If it is not set, it is 3 in a cluster of "
    "three brokers or more.",
    dynamic=True,
)
DELETE_TOPIC_ENABLE: Option[bool] = TOPIC_RULES.option(
    "delete.topic.enable", Boolean(), True, "Whether topics may be deleted.", dynamic=True
)
MAX_PARTITIONS_PER_BROKER: Option[int] = TOPIC_RULES.option(
    "max.partitions.per.broker",
    Integer(1, INT_MAX),
    20_000,
    "Maximum number of partition replicas on the broker. Creating topics or partitions beyond it is refused "
    "with POLICY_VIOLATION.",
    dynamic=True,
)
MAX_PARTITIONS_PER_TOPIC: Option[int] = TOPIC_RULES.option(
    "max.partitions.per.topic",
    Integer(1, INT_MAX),
    10_000,
    "Maximum number of partitions of a topic. A request for more is refused with INVALID_PARTITIONS.",
    dynamic=True,
)
MAX_TOPICS_PER_REQUEST: Option[int] = TOPIC_RULES.option(
    "max.topics.per.request",
    Integer(1, INT_MAX),
    2_000,
    "Maximum number of topics in one request to create, delete or alter topics. A larger request is refused "
    "with POLICY_VIOLATION.",
    dynamic=True,
)
NUM_PARTITIONS: Option[int] = TOPIC_RULES.option(
    "num.partitions",
    Integer(1, INT_MAX),
    1,
    "Number of partitions of topics that are created without one.",
    dynamic=True,
)

CONNECTIONS = OptionGroup("Connections and requests")
CONNECTION_MAX_IN_FLIGHT_BYTES: Option[int] = CONNECTIONS.option(
    "connection.max.in.flight.bytes",
    Integer(1, LONG_MAX),
    33_554_432,
    "Maximum size of responses that a client has not received yet. Above it the broker stops reading from the "
    "connection.",
)
CONNECTION_MAX_IN_FLIGHT_REQUESTS: Option[int] = CONNECTIONS.option(
    "connection.max.in.flight.requests",
    Integer(1, INT_MAX),
    128,
    "Maximum number of requests of one connection without a response. At this number the broker stops reading "
    "from the connection.",
)
CONNECTION_WRITE_TIMEOUT_MS: Option[int] = CONNECTIONS.option(
    "connection.write.timeout.ms",
    Integer(1, LONG_MAX),
    60_000,
    "A connection is closed if the client accepts no byte of a pending response for this long.",
)
CONNECTIONS_MAX_IDLE_MS: Option[int] = CONNECTIONS.option(
    "connections.max.idle.ms",
    Integer(1, LONG_MAX),
    600_000,
    "A connection is closed if it sends no request for this long.",
)
MAX_CONNECTION_CREATION_RATE: Option[int] = CONNECTIONS.option(
    "max.connection.creation.rate",
    Integer(1, INT_MAX),
    2_000,
    "Maximum number of connections that are accepted in a second. Further ones wait.",
)
MAX_CONNECTIONS: Option[int] = CONNECTIONS.option(
    "max.connections",
    Integer(1, INT_MAX),
    12_000,
    "Maximum number of connections. Further ones are closed at once. Each connection needs one of the "
    "process's file descriptors.",
)
MAX_CONNECTIONS_PER_IP: Option[int] = CONNECTIONS.option(
    "max.connections.per.ip",
    Integer(1, INT_MAX),
    11_000,
    "Maximum number of connections from one address. Further ones are closed at once.",
)
QUEUED_MAX_REQUEST_BYTES: Option[int] = CONNECTIONS.option(
    "queued.max.request.bytes",
    Integer(1, LONG_MAX),
    268_435_456,
    "Memory limit for requests without a response, over all connections. Above it the broker stops reading "
    "from connections that hold more than their share.",
)
REQUEST_RECEIVE_TIMEOUT_MS: Option[int] = CONNECTIONS.option(
    "request.receive.timeout.ms",
    Integer(1, LONG_MAX),
    60_000,
    "A connection is closed if it has sent part of a request and then no byte of it for this long.",
)
SOCKET_REQUEST_MAX_BYTES: Option[int] = CONNECTIONS.option(
    "socket.request.max.bytes",
    Integer(1_024, INT_MAX),
    104_857_600,
    "Maximum size of a request. A connection that announces a larger one is closed.",
)
SOCKET_SEND_BUFFER_BYTES: Option[int] = CONNECTIONS.option(
    "socket.send.buffer.bytes",
    Integer(-1, INT_MAX),
    262_144,
    "Send buffer of each connection in the operating system; -1 uses the system's default. A small buffer "
    "keeps data in the processor's cache. Distant consumers (a long round trip at a high rate) need a larger "
    "one.",
)

FETCHING = OptionGroup("Fetching")
FETCH_MAX_BYTES: Option[int] = FETCHING.option(
    "fetch.max.bytes",
    Integer(1_024, INT_MAX),
    57_671_680,
    "Maximum size of the records in one Fetch response, also if the consumer asks for more. A first batch "
    "that is larger is still returned completely.",
    dynamic=True,
)
FETCH_MAX_WAIT_MS: Option[int] = FETCHING.option(
    "fetch.max.wait.ms",
    Integer(0, INT_MAX),
    60_000,
    "Maximum time that a Fetch request waits for records, also if the consumer asks for more.",
    dynamic=True,
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS: Option[int] = FETCHING.option(
    "max.incremental.fetch.session.cache.slots",
    Integer(0, INT_MAX),
    10_000,
    "Maximum number of fetch sessions. Further consumers send their full list of partitions in each request.",
)
MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS: Option[int] = FETCHING.option(
    "min.incremental.fetch.session.eviction.ms",
    Integer(0, LONG_MAX),
    120_000,
    "A fetch session that has not been used for this long may be evicted for a new one.",
)
MAX_REQUEST_PARTITION_SIZE_LIMIT: Option[int] = FETCHING.option(
    "max.request.partition.size.limit",
    Integer(1, INT_MAX),
    2_000,
    "Maximum number of partitions in one DescribeTopicPartitions response. The client requests the rest with "
    "another request.",
    dynamic=True,
)

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

PROCESS = OptionGroup("Process")
EVENT_LOOP: Option[EventLoop] = PROCESS.option(
    "event.loop",
    Choice(EventLoop),
    EventLoop.AUTO,
    "Event loop: `uvloop` is the faster one, `asyncio` is Python's own. `auto` uses uvloop if it is "
    "installed.",
)
LOGGING_FORMAT: Option[LoggingFormat] = PROCESS.option(
    "logging.format",
    Choice(LoggingFormat),
    LoggingFormat.AUTO,
    "Format of log lines on standard error: `json` objects or `text` for people. `auto` uses text on a "
    "terminal and json otherwise.",
)
LOGGING_LEVEL: Option[LoggingLevel] = PROCESS.option(
    "logging.level",
    Choice(LoggingLevel),
    LoggingLevel.INFO,
    "Minimum level of log lines that are written.",
)
METRICS_MAX_GROUPS: Option[int] = PROCESS.option(
    "metrics.max.groups",
    Integer(0, INT_MAX),
    500,
    "Maximum number of consumer groups whose lag is in the metrics, in the order of their names. Other groups "
    "are not shown.",
)
METRICS_MAX_TOPICS: Option[int] = PROCESS.option(
    "metrics.max.topics",
    Integer(0, INT_MAX),
    1_000,
    "Maximum number of topics with metrics of their own. All other topics are added up.",
)
SHUTDOWN_TIMEOUT_MS: Option[int] = PROCESS.option(
    "shutdown.timeout.ms",
    Integer(0, INT_MAX),
    10_000,
    "Time that a stopping broker waits for the responses to requests in flight before it closes the "
    "connections.",
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
