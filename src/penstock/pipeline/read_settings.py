"""Connection and isolation settings of a read, for the driver and its tasks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from penstock.config import parse_address
from penstock.internal_client.client_security import ClientSecurity
from penstock.internal_client.routes import Routes
from penstock.net.network import TcpNetwork
from penstock.pipeline.kafka_security import SecureBootstrap

CLIENT_ID = "penstock-pipeline"
RETRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Bootstrap addresses and isolation level of a read: with `read_committed`, records of open and aborted
    transactions are hidden.
    """

    bootstrap: str
    read_committed: bool = True


def librdkafka_settings(bootstrap: str) -> dict[str, Any]:
    """confluent-kafka settings for a cluster, with the security settings from the environment. Raises ConfigError."""
    return {"bootstrap.servers": str(bootstrap), **_security_of(bootstrap).librdkafka()}


def _security_of(bootstrap: str) -> ClientSecurity:
    """Security settings stored in the bootstrap addresses by the options, else those of the environment."""
    if isinstance(bootstrap, SecureBootstrap):
        return bootstrap.security
    return ClientSecurity.from_environment(os.environ)


def open_routes(bootstrap: str, patience_seconds: float = RETRY_SECONDS) -> Routes:
    """Open connections to a cluster. The caller closes them.

    TLS and SASL settings come from the options of the source or sink, else from the environment of this process, which
    Spark passes to executors with `spark.executorEnv.`. Raises ConfigError if a file named in these settings cannot be
    used.
    """
    addresses = [parse_address(text.strip()) for text in bootstrap.split(",")]
    network = _security_of(bootstrap).network(TcpNetwork())
    return Routes(network, addresses, CLIENT_ID, patience_seconds=patience_seconds)
