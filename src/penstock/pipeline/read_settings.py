"""Connection and isolation settings of a read, for the driver and its tasks."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config import parse_address
from penstock.internal_client.routes import Routes
from penstock.net.network import TcpNetwork

CLIENT_ID = "penstock-pipeline"
RETRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Bootstrap addresses, and whether open and aborted transactions are hidden (read_committed)."""

    bootstrap: str
    read_committed: bool = True


def open_routes(bootstrap: str) -> Routes:
    """Open connections to a cluster. The caller closes them."""
    addresses = [parse_address(text.strip()) for text in bootstrap.split(",")]
    return Routes(TcpNetwork(), addresses, CLIENT_ID, patience_seconds=RETRY_SECONDS)
