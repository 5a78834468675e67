"""What a gateway takes from the process it is in, a broker or one of its own. Light to import: the broker does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.clock import Clock
from penstock.config import Address, BrokerConfig
from penstock.gateway.authorization import Authorize, allow_all
from penstock.internal_client.routes import Routes
from penstock.model import BrokerId
from penstock.net.network import Network
from penstock.observability.alarms import Alarms
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.threads import Threads

CLIENT_ID = "penstock-gateway"


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """To a cluster."""

    network: Network
    bootstrap: Sequence[Address]
    shortcuts: Mapping[BrokerId, Address] = field(default_factory=dict)
    """Where brokers are reached otherwise than where they say: the broker that the gateway runs in."""

    def routes(self) -> Routes:
        return Routes(self.network, self.bootstrap, CLIENT_ID, self.shortcuts)


@dataclass(frozen=True, slots=True)
class GatewayContext:
    """What a gateway takes from the process it is in."""

    cluster: ClusterAddress
    config: BrokerConfig
    clock: Clock
    threads: Threads
    log: Logger
    metrics: BrokerMetrics
    alarms: Alarms
    id_prefix: str
    """This gateway's alone among all of the cluster."""
    authorize: Authorize = allow_all
