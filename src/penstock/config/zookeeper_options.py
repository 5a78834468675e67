"""Broker options for TLS to ZooKeeper, with Kafka's names."""

from __future__ import annotations

from penstock.config.options import Option, OptionGroup
from penstock.config.tls_options import HostCheck
from penstock.config.types import Boolean, Choice, Optional, Text

ZOOKEEPER_TLS = OptionGroup("TLS to ZooKeeper")
ZOOKEEPER_SSL_CLIENT_ENABLE: Option[bool] = ZOOKEEPER_TLS.option(
    "zookeeper.ssl.client.enable",
    Boolean(),
    False,
    "Whether the connection to ZooKeeper uses TLS; `zookeeper.connect` names secure ports then.",
)
ZOOKEEPER_SSL_KEYSTORE_LOCATION: Option[str | None] = ZOOKEEPER_TLS.option(
    "zookeeper.ssl.keystore.location",
    Optional(Text()),
    None,
    "PEM file with the certificate of the broker for ZooKeeper and its private key. It is read at each connection.",
)
ZOOKEEPER_SSL_KEYSTORE_PASSWORD: Option[str | None] = ZOOKEEPER_TLS.option(
    "zookeeper.ssl.keystore.password",
    Optional(Text()),
    None,
    "Password of the private key in `zookeeper.ssl.keystore.location`.",
    sensitive=True,
)
ZOOKEEPER_SSL_TRUSTSTORE_LOCATION: Option[str | None] = ZOOKEEPER_TLS.option(
    "zookeeper.ssl.truststore.location",
    Optional(Text()),
    None,
    "PEM file with the authorities of ZooKeeper's certificates; those of the system are trusted too.",
)
ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM: Option[HostCheck | None] = ZOOKEEPER_TLS.option(
    "zookeeper.ssl.endpoint.identification.algorithm",
    Optional(Choice(HostCheck)),
    HostCheck.HTTPS,
    "Whether the name in the certificate of ZooKeeper is checked. Empty disables the check.",
)
ZOOKEEPER_X509_ACL_ENABLE: Option[bool] = ZOOKEEPER_TLS.option(
    "zookeeper.x509.acl.enable",
    Boolean(),
    False,
    "Whether only clients with the subject of this broker's certificate may read and change the nodes that brokers "
    "create. All brokers need certificates with the same subject for ZooKeeper.",
)
