"""Broker options for SASL and users, with Kafka's names. Each `sasl.` option can be set for one listener."""

from __future__ import annotations

from enum import StrEnum

from penstock.config.options import Option, OptionGroup
from penstock.config.types import INT_MAX, LONG_MAX, Boolean, Integer, ListOf, Optional, Text


class SaslMechanism(StrEnum):
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    PLAIN = "PLAIN"
    OAUTHBEARER = "OAUTHBEARER"


SASL = OptionGroup("SASL and users")
SASL_ENABLED_MECHANISMS: Option[tuple[SaslMechanism, ...]] = SASL.option(
    "sasl.enabled.mechanisms",
    ListOf(SaslMechanism),
    (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512, SaslMechanism.PLAIN),
    "Mechanisms by which clients of SASL_SSL and SASL_PLAINTEXT listeners log in. PLAIN is offered with TLS only, see "
    "`sasl.plain.without.tls`.",
)
SASL_PLAIN_WITHOUT_TLS: Option[bool] = SASL.option(
    "sasl.plain.without.tls",
    Boolean(),
    False,
    "Whether PLAIN is offered without TLS too, where anyone on the network can read the passwords.",
)
SASL_SERVER_MAX_RECEIVE_SIZE: Option[int] = SASL.option(
    "sasl.server.max.receive.size",
    Integer(1_024, INT_MAX),
    524_288,
    "Maximum size of a request before the client has logged in.",
)
CONNECTIONS_MAX_REAUTH_MS: Option[int] = SASL.option(
    "connections.max.reauth.ms",
    Integer(0, LONG_MAX),
    0,
    "Lifetime of a login: clients log in again on the same connection before it is over (KIP-368), and other "
    "connections are closed. 0 means no limit.",
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS: Option[int] = SASL.option(
    "connection.failed.authentication.delay.ms",
    Integer(0, 10_000),
    100,
    "Time after which a failed login is answered. Other connections do not wait.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL: Option[str | None] = SASL.option(
    "sasl.oauthbearer.jwks.endpoint.url",
    Optional(Text()),
    None,
    "Keys of the token issuer (JWKS), as https:// or file:// URL.",
)
SASL_OAUTHBEARER_EXPECTED_AUDIENCE: Option[str | None] = SASL.option(
    "sasl.oauthbearer.expected.audience",
    Optional(Text()),
    None,
    "Audiences of which a token must have one, separated by commas. Required for OAUTHBEARER.",
)
SASL_OAUTHBEARER_EXPECTED_ISSUER: Option[str | None] = SASL.option(
    "sasl.oauthbearer.expected.issuer", Optional(Text()), None, "Issuer of tokens. Required for OAUTHBEARER."
)
SASL_OAUTHBEARER_SUB_CLAIM_NAME: Option[str] = SASL.option(
    "sasl.oauthbearer.sub.claim.name", Text(), "sub", "Claim with the name of the user."
)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS: Option[int] = SASL.option(
    "sasl.oauthbearer.clock.skew.seconds",
    Integer(0, 3_600),
    30,
    "Difference of clocks that is tolerated when the times of a token are checked.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS: Option[int] = SASL.option(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    Integer(100, LONG_MAX),
    3_600_000,
    "Interval at which the keys of the token issuer are read again. While that fails, the last ones are used.",
)
ADMIN_USER: Option[str | None] = SASL.option(
    "admin.user",
    Optional(Text()),
    None,
    "User that is created at the start if the cluster has no user, with the password in `admin.password.file`.",
)
ADMIN_PASSWORD_FILE: Option[str | None] = SASL.option(
    "admin.password.file",
    Optional(Text()),
    None,
    "File with the password of `admin.user`. It must not be readable by other users of the machine.",
)
