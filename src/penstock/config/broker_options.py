"""Broker options for identity, cluster, topics and the process, and the table of all broker options."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from penstock.config.authorization_options import AUDIT, AUTHORIZATION
from penstock.config.connection_options import CONNECTIONS, FETCHING
from penstock.config.dead_letter_options import DEAD_LETTERS
from penstock.config.gateway_options import GATEWAY
from penstock.config.group_options import CONSUMER_GROUPS
from penstock.config.listeners import DEFAULT_PROTOCOLS, EndpointList, Endpoints, ProtocolMap, ProtocolMapType
from penstock.config.options import Option, OptionGroup, table
from penstock.config.sasl_options import SASL
from penstock.config.share_options import SHARE_GROUPS
from penstock.config.storage_options import REPLICATION, STORAGE
from penstock.config.tls_options import TLS
from penstock.config.topic_options import TOPIC_DEFAULTS
from penstock.config.transaction_options import TRANSACTIONS
from penstock.config.types import INT_MAX, Boolean, Choice, Integer, Optional, Text
from penstock.config.webhook_options import WEBHOOKS
from penstock.config.zookeeper_options import ZOOKEEPER_TLS


class EventLoop(StrEnum):
    AUTO = "auto"
    UVLOOP = "uvloop"
    ASYNCIO = "asyncio"


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
LISTENERS: Option[Endpoints | None] = IDENTITY.option(
    "listeners",
    Optional(EndpointList(is_bound=True)),
    None,
    "Listeners for Kafka clients, as in `CLIENTS://0.0.0.0:9093,LOCAL://127.0.0.1:9092`. Without it there is one, "
    "PLAINTEXT at `host` and `port`. `listener.name.<name>.<option>` sets a connection, `ssl.` or `sasl.` option "
    "for one listener.",
)
LISTENER_SECURITY_PROTOCOL_MAP: Option[ProtocolMap] = IDENTITY.option(
    "listener.security.protocol.map",
    ProtocolMapType(),
    DEFAULT_PROTOCOLS,
    "Security protocol of each listener, as in `CLIENTS:SASL_SSL,LOCAL:PLAINTEXT`. A listener with the name of a "
    "protocol needs no entry.",
)
ADVERTISED_LISTENERS: Option[Endpoints | None] = IDENTITY.option(
    "advertised.listeners",
    Optional(EndpointList(is_bound=False)),
    None,
    "Addresses that clients connect to, if they differ from `listeners` or from `host` and `port`, for "
    "example behind a container's port mapping or a proxy. A client gets the addresses of the listener that it "
    "uses. Without an entry, a listener at 0.0.0.0 advertises `localhost`.",
)
INTER_BROKER_LISTENER_NAME: Option[str | None] = IDENTITY.option(
    "inter.broker.listener.name",
    Optional(Text()),
    None,
    "Listener that brokers use between each other; by default the first one.",
)
HTTP_PORT: Option[int] = IDENTITY.option(
    "http.port",
    Integer(-1, 65_535),
    8_080,
    "Port for HTTP: the gateway, /metrics and /health. 0 picks a free port, -1 disables HTTP.",
)
PROCESSES: Option[int] = IDENTITY.option(
    "processes",
    Integer(1, 64),
    1,
    "Number of broker processes on this machine, one for each core at most. They are brokers of one cluster with "
    "the ids from `node.id` on and the ports from `port` on, and share the HTTP port.",
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
    "three brokers or more; the brokers of one machine with `processes` count as one.",
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
    TLS,
    SASL,
    ZOOKEEPER_TLS,
    AUTHORIZATION,
    AUDIT,
    FETCHING,
    GATEWAY,
    CONSUMER_GROUPS,
    SHARE_GROUPS,
    DEAD_LETTERS,
    TRANSACTIONS,
    WEBHOOKS,
    STORAGE,
    REPLICATION,
    PROCESS,
    TOPIC_DEFAULTS,
)
BROKER_OPTIONS: Mapping[str, Option[Any]] = table(
    option for group in BROKER_GROUPS for option in group.options
)
