"""Dependencies that a gateway gets from its process. Every broker imports this module, so it must load quickly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.clock import Clock
from penstock.config import Address, BrokerConfig
from penstock.gateway.authorization import Authorize, Learn, allow_all, learn_nothing
from penstock.gateway.http.user_quota import UserQuota
from penstock.gateway.http.users import HttpUsers
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
    """How to connect to a cluster: the network and the bootstrap addresses."""

    network: Network
    bootstrap: Sequence[Address]
    shortcuts: Mapping[BrokerId, Address] = field(default_factory=dict)
    """Addresses that replace advertised ones, so that the broker that the gateway runs in is reached directly."""

    client_id: str = CLIENT_ID

    def routes(self) -> Routes:
        return Routes(self.network, self.bootstrap, self.client_id, self.shortcuts)


@dataclass(frozen=True, slots=True)
class GatewayContext:
    """Dependencies that a gateway gets from its process, which is a broker or a stand-alone gateway."""

    cluster: ClusterAddress
    config: BrokerConfig
    clock: Clock
    threads: Threads
    log: Logger
    metrics: BrokerMetrics
    alarms: Alarms
    id_prefix: str
    """Prefix of request ids and member ids, unique among the gateways of the cluster."""
    authorize: Authorize = allow_all
    learn: Learn = learn_nothing
    """Fetches the decisions that `authorize` will be asked for."""
    shows: Authorize | None = None
    """Decides which entries a list includes, without recording a denial; None if `authorize` decides this too."""
    learn_shown: Learn = learn_nothing
    """Fetches the decisions that `shows` will be asked for."""
    users: HttpUsers | None = None
    """Logins of clients; None if clients do not log in."""
    quota: UserQuota | None = None
    """Quotas of users; None if this gateway enforces none."""
