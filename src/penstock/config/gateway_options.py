"""Options of the HTTP gateway, which runs inside a broker or in a separate process."""

from __future__ import annotations

import re
from ipaddress import ip_network

from penstock.config.options import Option, OptionGroup
from penstock.config.types import INT_MAX, LONG_MAX, Boolean, Integer, Optional, Parsed

Origins = tuple[str, ...]
_HOST_NAME = re.compile(r"[a-zA-Z0-9._-]{1,253}")
_PATTERN = re.compile(r"[a-zA-Z0-9._*-]{1,249}")


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


def _read_names(text: str) -> Origins:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(name)
    return names


def _read_patterns(text: str) -> Origins:
    patterns = tuple(pattern.strip() for pattern in text.split(","))
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise ValueError(pattern)
    return patterns


class UserNames(tuple[str, ...]):
    """Names of users, written as Kafka writes `super.users`: `User:NAME`, separated by semicolons."""

    __slots__ = ()

    def __str__(self) -> str:
        return ";".join(f"User:{name}" for name in self)


def read_user_names(text: str) -> UserNames:
    names = UserNames(each.strip().removeprefix("User:") for each in text.split(";") if each.strip())
    if not all(names):
        raise ValueError(text)
    return names


GATEWAY = OptionGroup("HTTP gateway")
GATEWAY_ENABLE: Option[bool] = GATEWAY.option(
    "gateway.enable",
    Boolean(),
    True,
    "Whether the broker serves the HTTP gateway on `http.port`. Otherwise only /metrics and /health are "
    "served there.",
)
HTTP_SSL_ENABLE: Option[bool] = GATEWAY.option(
    "http.ssl.enable",
    Boolean(),
    False,
    "Whether HTTP uses TLS. Certificates are those of the `ssl.` settings; `listener.name.http.` in front of one sets "
    "it for HTTP alone.",
)
HTTP_AUTHENTICATION_ENABLE: Option[bool] = GATEWAY.option(
    "http.authentication.enable",
    Boolean(),
    False,
    "Whether HTTP requests need the name and password of a user (Basic), or a token of the issuer in "
    "`sasl.oauthbearer.jwks.endpoint.url` or an access token (Bearer), or the session of a browser. /health "
    "needs none, /metrics none on the machine itself.",
)
HTTP_SESSION_LIFETIME_MS: Option[int] = GATEWAY.option(
    "http.session.lifetime.ms",
    Integer(1_000, LONG_MAX),
    43_200_000,
    "Lifetime of the session of a browser. It ends earlier if the user is changed, disabled or deleted.",
)
GATEWAY_USERS: Option[UserNames] = GATEWAY.option(
    "gateway.users",
    Parsed(read_user_names, "users as User:gateway, separated by semicolons"),
    UserNames(),
    "Users of stand-alone gateways. A connection of such a user may make requests on behalf of any other user, so it "
    "has the rights of all users. Set it at the brokers.",
)
GATEWAY_ALLOWED_HOSTS: Option[Origins | None] = GATEWAY.option(
    "gateway.allowed.hosts",
    Optional(Parsed(_read_names, "host names, separated by commas")),
    None,
    "Names by which web browsers may reach the gateway, besides addresses, `localhost` and the advertised name. A "
    "browser at another name is refused with 421, so that no web page can reach the gateway by a name of its own.",
)
GATEWAY_ALLOWED_ORIGINS: Option[Origins | None] = GATEWAY.option(
    "gateway.allowed.origins",
    Optional(Parsed(_read_origins, "origins as https://app.example.com, separated by commas")),
    None,
    "Origins of web pages that may use the gateway from a browser (CORS). By default none; `*` is not "
    "supported.",
)
GATEWAY_BODY_MAX_BYTES: Option[int] = GATEWAY.option(
    "gateway.body.max.bytes",
    Integer(1_024, INT_MAX),
    16 * 1024 * 1024,
    "Maximum size of a request body that is not JSON. A larger one is refused with 413.",
)
GATEWAY_BODIES_MAX_BYTES: Option[int] = GATEWAY.option(
    "gateway.bodies.max.bytes",
    Integer(1024 * 1024, LONG_MAX),
    256 * 1024 * 1024,
    "Memory limit for the bodies of all requests without a response. One address may use half of it. A "
    "request beyond the limit is refused with 429.",
)
GATEWAY_CLIENT_MAX_CONNECTIONS: Option[int | None] = GATEWAY.option(
    "gateway.client.max.connections",
    Optional(Integer(1, INT_MAX)),
    None,
    "Maximum number of HTTP connections from one address (for IPv6: from one /64 network), by default a "
    "quarter of `gateway.max.connections`. Beyond it the oldest idle connection of the address is closed. If "
    "none is idle, the new connection is served for /health and /metrics only, and other requests get 429.",
)
GATEWAY_CLIENT_MAX_REQUESTS: Option[int] = GATEWAY.option(
    "gateway.client.max.requests",
    Integer(1, INT_MAX),
    2_000,
    "Maximum number of concurrent requests from one address, including those that wait for messages. Further "
    "ones are refused with 429.",
)
GATEWAY_CLIENT_MAX_REQUEST_RATE: Option[int] = GATEWAY.option(
    "gateway.client.max.request.rate",
    Integer(1, INT_MAX),
    100_000,
    "Maximum number of requests in a second from one address. Further ones are refused with 429.",
)
GATEWAY_DELIVERY_TIMEOUT_MS: Option[int] = GATEWAY.option(
    "gateway.delivery.timeout.ms",
    Integer(1_000, 600_000),
    10_000,
    "Time for which the gateway tries to deliver a message before the HTTP request fails.",
)
GATEWAY_JSON_MAX_BYTES: Option[int] = GATEWAY.option(
    "gateway.json.max.bytes",
    Integer(1_024, 64 * 1024 * 1024),
    1024 * 1024,
    "Maximum size of a JSON body. A larger one is refused with 413. Parsing a megabyte delays all other "
    "requests by milliseconds.",
)
GATEWAY_MAX_CONNECTIONS: Option[int] = GATEWAY.option(
    "gateway.max.connections",
    Integer(1, INT_MAX),
    4_000,
    "Maximum number of HTTP connections. Beyond it the address with the most connections loses its oldest one "
    "that is idle or waits for messages. If no address has more than the new client, the new connection is "
    "served for /health and /metrics only, and other requests get 503.",
)
GATEWAY_MAX_WAIT_MS: Option[int] = GATEWAY.option(
    "gateway.max.wait.ms",
    Integer(0, 3_600_000),
    60_000,
    "Maximum time that a request may wait for messages.",
)
GATEWAY_TRUSTED_PROXIES: Option[Origins | None] = GATEWAY.option(
    "gateway.trusted.proxies",
    Optional(Parsed(_read_networks, "addresses or networks as 10.0.0.0/8, separated by commas")),
    None,
    "Addresses of reverse proxies in front of the gateway. Their number of connections is not limited, and "
    "their connections that wait for messages are not closed to make room.",
)
GATEWAY_WRITE_TIMEOUT_MS: Option[int] = GATEWAY.option(
    "gateway.write.timeout.ms",
    Integer(1_000, LONG_MAX),
    30_000,
    "An HTTP connection is closed if the client accepts no byte of a pending response for this long.",
)
MAILBOX_NUM_PARTITIONS: Option[int] = GATEWAY.option(
    "mailbox.num.partitions",
    Integer(1, 10_000),
    12,
    "Number of partitions of the topic `mailbox`, which is created when the first message is sent.",
)
CONSOLE_ENABLE: Option[bool] = GATEWAY.option(
    "console.enable",
    Boolean(),
    True,
    "Whether the gateway serves the web console at /console. A browser that opens `/` is redirected to it.",
)
CONSOLE_HIDE_VALUES: Option[Origins | None] = GATEWAY.option(
    "console.hide.values",
    Optional(Parsed(_read_patterns, "names of topics, separated by commas, with * for any characters")),
    None,
    "Topics whose message values and header values the console does not show, as `payments, *.private`. This "
    "changes only the console: the HTTP API and Kafka clients still read the values.",
)
