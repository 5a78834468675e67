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
    """Bootstrap addresses, and whether open and aborted transactions are hidden (read_committed)."""

    bootstrap: str
    read_committed: bool = True


def librdkafka_settings(bootstrap: str) -> dict[str, Any]:
    """Settings of confluent-kafka for a cluster, with the security of the environment. Raises ConfigError."""
    return {"bootstrap.servers": str(bootstrap), **_security_of(bootstrap).librdkafka()}


def _security_of(bootstrap: str) -> ClientSecurity:
    """Security of the options, if the addresses carry it, else of the environment."""
    if isinstance(bootstrap, SecureBootstrap):
        return bootstrap.security
    return ClientSecurity.from_environment(os.environ)


def open_routes(bootstrap: str, patience_seconds: float = RETRY_SECONDS) -> Routes:
    """Open connections to a cluster. The caller closes them.

    TLS and the user come from the options of the source or sink, or from the environment of this process, which Spark
    passes to executors with `spark.executorEnv.`. Raises ConfigError if a file they name cannot be used.
    """
    addresses = [parse_address(text.strip()) for text in bootstrap.split(",")]
    network = _security_of(bootstrap).network(TcpNetwork())
    return Routes(network, addresses, CLIENT_ID, patience_seconds=patience_seconds)
