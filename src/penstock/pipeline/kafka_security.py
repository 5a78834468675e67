"""Security options of Spark's Kafka source and sink: `kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*`.

The options are stored in the bootstrap address, so that they reach every task. Without these options, the environment
of the process defines the security.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.errors import PenstockError
from penstock.internal_client.client_security import MECHANISM, ClientSecurity

NAMES = (
    "kafka.security.protocol",
    "kafka.sasl.mechanism",
    "kafka.sasl.jaas.config",
    "kafka.ssl.truststore.location",
    "kafka.ssl.truststore.type",
    "kafka.ssl.keystore.location",
    "kafka.ssl.keystore.type",
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


class SecurityOptionError(PenstockError):
    pass


class SecureBootstrap(str):
    """Bootstrap addresses with the security settings for connections to them. Spark pickles both together for tasks."""

    security: ClientSecurity


def with_security(bootstrap: str, values: Mapping[str, str]) -> str:
    """Add the security settings of the options to the bootstrap addresses. Raises SecurityOptionError."""
    if not any(name in values for name in NAMES):
        return bootstrap
    protocol = values.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise SecurityOptionError(
            f"kafka.security.protocol: give one of {', '.join(_PROTOCOLS)}, not {protocol!r}"
        )
    user, password = _login(values) if protocol.startswith("SASL") else (None, "")
    ca = certificate = None
    if protocol.endswith("SSL"):
        ca, certificate = _pem(values, "truststore"), _pem(values, "keystore")
        if ca is None:
            raise SecurityOptionError(
                "kafka.ssl.truststore.location: name a PEM file with the brokers' authority"
            )
    found = SecureBootstrap(bootstrap)
    found.security = ClientSecurity(ca, certificate, user, password)
    return found


def _login(values: Mapping[str, str]) -> tuple[str, str]:
    mechanism = values.get("kafka.sasl.mechanism", str(MECHANISM))
    if mechanism != str(MECHANISM):
        raise SecurityOptionError(
            f"kafka.sasl.mechanism: this source logs in with {MECHANISM}, not {mechanism}"
        )
    found = dict(_JAAS.findall(values.get("kafka.sasl.jaas.config", "")))
    if set(found) != {"username", "password"}:
        raise SecurityOptionError(
            'kafka.sasl.jaas.config: give ScramLoginModule required username="USER" password="PASSWORD";'
        )
    return found["username"], re.sub(r"\\(.)", r"\1", found["password"])


def _pem(values: Mapping[str, str], store: str) -> str | None:
    place = values.get(f"kafka.ssl.{store}.location")
    if place is None:
        return None
    kind = values.get(f"kafka.ssl.{store}.type", "PEM")
    if kind.upper() != "PEM" or place.endswith((".jks", ".p12", ".pfx")):
        raise SecurityOptionError(
            f"kafka.ssl.{store}.location: {place} must be a PEM file; `keytool -exportcert -rfc` and `openssl pkcs12` "
            "convert others"
        )
    return place
