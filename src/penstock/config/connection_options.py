"""Broker options for connections, requests and fetches. Kafka's options have Kafka's names."""

from __future__ import annotations

from penstock.config.options import Option, OptionGroup
from penstock.config.types import INT_MAX, LONG_MAX, Integer

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
