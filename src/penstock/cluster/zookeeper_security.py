"""Security of the connection to ZooKeeper: TLS, and the access rights of the nodes that brokers create."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.config import (
    ZOOKEEPER_DIGEST,
    ZOOKEEPER_SSL_CLIENT_ENABLE,
    ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
    ZOOKEEPER_SSL_KEYSTORE_LOCATION,
    ZOOKEEPER_SSL_KEYSTORE_PASSWORD,
    ZOOKEEPER_SSL_TRUSTSTORE_LOCATION,
    ZOOKEEPER_X509_ACL_ENABLE,
    BrokerConfig,
)
from penstock.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    digest: str | None = field(default=None, repr=False)
    """Credentials `user:password`. If set, only this user may read or change the created nodes."""
    uses_tls: bool = False
    certificate: str | None = None
    """PEM file with the certificate and key of this client."""
    key_password: str | None = field(default=None, repr=False)
    authorities: str | None = None
    checks_host: bool = True
    subject: str | None = None
    """Subject of a client certificate. If set, only clients with this subject may read or change the created nodes."""

    def __post_init__(self) -> None:
        if self.digest is not None and not all(self.digest.partition(":")):
            raise ConfigError("zookeeper.digest: write user:password")

    def kazoo_options(self) -> dict[str, Any]:
        """TLS options for kazoo; empty without TLS."""
        if not self.uses_tls:
            return {}
        return {
            "use_ssl": True,
            "certfile": self.certificate,
            "keyfile": self.certificate,
            "keyfile_password": self.key_password,
            "ca": self.authorities,
            "verify_certs": True,
            "check_hostname": self.checks_host,
        }


def zookeeper_security(config: BrokerConfig, subject_of: Callable[[str], str]) -> ZooKeeperSecurity:
    """Security from the settings of a broker. `subject_of` reads the subject of a certificate file. Raises
    ConfigError.
    """
    certificate, has_tls = config[ZOOKEEPER_SSL_KEYSTORE_LOCATION], config[ZOOKEEPER_SSL_CLIENT_ENABLE]
    subject = None
    if config[ZOOKEEPER_X509_ACL_ENABLE]:
        if not has_tls or certificate is None:
            raise ConfigError(
                "zookeeper.x509.acl.enable needs zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location"
            )
        subject = subject_of(certificate)
    return ZooKeeperSecurity(
        config[ZOOKEEPER_DIGEST],
        has_tls,
        certificate,
        config[ZOOKEEPER_SSL_KEYSTORE_PASSWORD],
        config[ZOOKEEPER_SSL_TRUSTSTORE_LOCATION],
        config[ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM] is not None,
        subject,
    )
