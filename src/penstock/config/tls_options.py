"""Broker options for TLS, with Kafka's names. Each can be set for one listener with `listener.name.<name>.`."""

from __future__ import annotations

from enum import StrEnum

from penstock.config.options import Option, OptionGroup
from penstock.config.principal_mapping import PrincipalRules, parse_principal_rules
from penstock.config.types import LONG_MAX, Choice, Integer, ListOf, Only, Optional, Parsed, Text


class ClientAuthentication(StrEnum):
    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class TlsVersion(StrEnum):
    TLS_1_2 = "TLSv1.2"
    TLS_1_3 = "TLSv1.3"


class HostCheck(StrEnum):
    HTTPS = "https"


_CONVERT = (
    "convert PKCS12 with `openssl pkcs12 -in FILE.p12 -out FILE.pem -noenc`, and JKS first with `keytool "
    "-importkeystore -srckeystore FILE.jks -destkeystore FILE.p12 -deststoretype PKCS12`"
)

TLS = OptionGroup("TLS")
SSL_KEYSTORE_TYPE: Option[str] = TLS.option(
    "ssl.keystore.type",
    Only(Text(), "PEM", _CONVERT),
    "PEM",
    "Format of the certificate and the private key.",
)
SSL_KEYSTORE_LOCATION: Option[str | None] = TLS.option(
    "ssl.keystore.location",
    Optional(Text()),
    None,
    "PEM file with the certificate chain of the broker, and with its private key unless "
    "`ssl.keystore.key.location` names another file. Read again when it changes.",
    dynamic=True,
)
SSL_KEYSTORE_KEY_LOCATION: Option[str | None] = TLS.option(
    "ssl.keystore.key.location",
    Optional(Text()),
    None,
    "PEM file with the private key, if it is not in `ssl.keystore.location`.",
    dynamic=True,
)
SSL_KEY_PASSWORD: Option[str | None] = TLS.option(
    "ssl.key.password", Optional(Text()), None, "Password of an encrypted private key.", sensitive=True
)
SSL_TRUSTSTORE_TYPE: Option[str] = TLS.option(
    "ssl.truststore.type", Only(Text(), "PEM", _CONVERT), "PEM", "Format of the trusted certificates."
)
SSL_TRUSTSTORE_LOCATION: Option[str | None] = TLS.option(
    "ssl.truststore.location",
    Optional(Text()),
    None,
    "PEM file with the certificates of trusted authorities: for client certificates, and for connections to other "
    "brokers. Read again when it changes. Without it, clients are checked against no authority and brokers against "
    "those of the system.",
    dynamic=True,
)
SSL_CRL_LOCATION: Option[str | None] = TLS.option(
    "ssl.crl.location",
    Optional(Text()),
    None,
    "PEM file with certificate revocation lists of all trusted authorities. A revoked certificate is refused. Read "
    "again when it changes.",
    dynamic=True,
)
SSL_CLIENT_AUTH: Option[ClientAuthentication] = TLS.option(
    "ssl.client.auth",
    Choice(ClientAuthentication),
    ClientAuthentication.NONE,
    "Whether clients show a certificate: not asked for (`none`), checked if there is one (`requested`), or "
    "`required`.",
)
SSL_PRINCIPAL_MAPPING_RULES: Option[PrincipalRules] = TLS.option(
    "ssl.principal.mapping.rules",
    Parsed(parse_principal_rules, "Kafka's mapping rules, as in RULE:^CN=([^,]+).*$/$1/L,DEFAULT"),
    parse_principal_rules("DEFAULT"),
    "Rules from the subject of a client certificate to the name of the user. The first rule that matches applies; "
    "`DEFAULT` is the whole subject.",
)
SSL_ENABLED_PROTOCOLS: Option[tuple[TlsVersion, ...]] = TLS.option(
    "ssl.enabled.protocols",
    ListOf(TlsVersion),
    (TlsVersion.TLS_1_2, TlsVersion.TLS_1_3),
    "TLS versions. Older ones are not supported.",
)
SSL_CIPHER_SUITES: Option[str | None] = TLS.option(
    "ssl.cipher.suites",
    Optional(Text()),
    None,
    "Cipher suites of TLS 1.2, as OpenSSL names them, separated by colons. By default suites with forward secrecy "
    "and authenticated encryption. TLS 1.3 has no weak suites to choose from.",
)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM: Option[HostCheck | None] = TLS.option(
    "ssl.endpoint.identification.algorithm",
    Optional(Choice(HostCheck)),
    HostCheck.HTTPS,
    "Whether the name in the certificate of another broker is checked. Empty disables the check.",
)
SSL_HANDSHAKE_TIMEOUT_MS: Option[int] = TLS.option(
    "ssl.handshake.timeout.ms",
    Integer(1, LONG_MAX),
    10_000,
    "A connection is closed if its TLS handshake takes longer, or its authentication after that.",
)
SSL_RELOAD_INTERVAL_MS: Option[int] = TLS.option(
    "ssl.reload.interval.ms",
    Integer(10, LONG_MAX),
    10_000,
    "Interval at which files with certificates and keys are checked for changes. If the new ones cannot "
    "be used, the broker keeps the old ones.",
)
