"""Every setting of the HTTP gateway, inside a broker and in a process of its own."""

from __future__ import annotations

from ipaddress import ip_network

from penstock.config.options import Group, Option
from penstock.config.types import INT_MAX, LONG_MAX, Boolean, Integer, Optional, Parsed

Origins = tuple[str, ...]


def _read_origins(text: str) -> Origins:
    origins = tuple(origin.strip() for origin in text.split(","))
    for origin in origins:
        scheme, found, host = origin.partition("://")
        if not found or scheme not in ("http", "https") or not host or "/" in host or "*" in host:
            raise ValueError(origin)
    return origins


def _read_networks(text: str) -> Origins:
    networks = tuple(network.strip() for network in text.split(","))
    for network in networks:
        ip_network(network)
    return networks


GATEWAY = Group("HTTP gateway")
GATEWAY_ENABLE: Option[bool] = GATEWAY.option(
    "gateway.enable",
    Boolean(),
    True,
    "Whether a broker serves the HTTP gateway on `http.port`; else /metrics and /health alone.",
)
GATEWAY_ALLOWED_ORIGINS: Option[Origins | None] = GATEWAY.option(
    "gateway.allowed.origins",
    Optional(Parsed(_read_origins, "origins as https://app.example.com, separated by commas")),
    None,
    "The web pages that may use the gateway from a browser (CORS). None unless named; there is no `*`.",
)
GATEWAY_BODY_MAX_BYTES: Option[int] = GATEWAY.option(
    "gateway.body.max.bytes",
    Integer(1_024, INT_MAX),
    16 * 1024 * 1024,
    "The largest body of a request that is not JSON; a larger one is refused with 413.",
)
GATEWAY_BODIES_MAX_BYTES: Option[int] = GATEWAY.option(
    "gateway.bodies.max.bytes",
    Integer(1024 * 1024, LONG_MAX),
    256 * 1024 * 1024,
    "Memory for the bodies of all requests that are unanswered, of which one address gets half; a request that finds "
    "no room is refused with 429.",
)
GATEWAY_CLIENT_MAX_CONNECTIONS: Option[int | None] = GATEWAY.option(
    "gateway.client.max.connections",
    Optional(Integer(1, INT_MAX)),
    None,
    "The most HTTP connections of one address (of IPv6: of one /64 network) at a time; a quarter of "
    "`gateway.max.connections` unless given. Beyond them its oldest idle connection is closed; without one the new "
    "connection is answered for /health and /metrics alone, else with 429.",
)
GATEWAY_CLIENT_MAX_REQUESTS: Option[int] = GATEWAY.option(
    "gateway.client.max.requests",
    Integer(1, INT_MAX),
    2_000,
    "The most requests of one address at a time, those that wait for messages among them; further ones are refused "
    "with 429.",
)
GATEWAY_CLIENT_MAX_REQUEST_RATE: Option[int] = GATEWAY.option(
    "gateway.client.max.request.rate",
    Integer(1, INT_MAX),
    100_000,
    "The most requests of one address in a second; further ones are refused with 429.",
)
GATEWAY_DELIVERY_TIMEOUT_MS: Option[int] = GATEWAY.option(
    "gateway.delivery.timeout.ms",
    Integer(1_000, 600_000),
    10_000,
    "How long a message that is sent by HTTP is tried to be delivered before the request fails.",
)
GATEWAY_JSON_MAX_BYTES: Option[int] = GATEWAY.option(
    "gateway.json.max.bytes",
    Integer(1_024, 64 * 1024 * 1024),
    1024 * 1024,
    "The largest JSON body; a larger one is refused with 413. Reading a megabyte holds up everybody else for "
    "milliseconds.",
)
GATEWAY_MAX_CONNECTIONS: Option[int] = GATEWAY.option(
    "gateway.max.connections",
    Integer(1, INT_MAX),
    4_000,
    "The most HTTP connections at a time. Beyond them the address with the most loses its oldest connection that is "
    "idle or waits for messages; where no address has more than the new one, the new connection is answered for "
    "/health and /metrics alone, else with 503.",
)
GATEWAY_MAX_WAIT_MS: Option[int] = GATEWAY.option(
    "gateway.max.wait.ms",
    Integer(0, 3_600_000),
    60_000,
    "The longest that a request may wait for messages.",
)
GATEWAY_TRUSTED_PROXIES: Option[Origins | None] = GATEWAY.option(
    "gateway.trusted.proxies",
    Optional(Parsed(_read_networks, "addresses or networks as 10.0.0.0/8, separated by commas")),
    None,
    "Reverse proxies in front of the gateway. They may have any number of connections, and none of theirs that waits "
    "for messages is closed to make room.",
)
GATEWAY_WRITE_TIMEOUT_MS: Option[int] = GATEWAY.option(
    "gateway.write.timeout.ms",
    Integer(1_000, LONG_MAX),
    30_000,
    "A connection whose peer takes no byte of a waiting answer for this long is closed.",
)
MAILBOX_NUM_PARTITIONS: Option[int] = GATEWAY.option(
    "mailbox.num.partitions",
    Integer(1, 10_000),
    12,
    "How many partitions the topic `mailbox` is made with, when the first message is sent.",
)
