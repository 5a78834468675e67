"""The dependencies that a gateway gets from its process. Cheap to import, since every broker imports it."""

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
    """The address of a cluster: a network and bootstrap addresses."""

    network: Network
    bootstrap: Sequence[Address]
    shortcuts: Mapping[BrokerId, Address] = field(default_factory=dict)
    """Addresses that replace the advertised ones: the broker that the gateway runs in is reached directly."""

    client_id: str = CLIENT_ID

    def routes(self) -> Routes:
        return Routes(self.network, self.bootstrap, self.client_id, self.shortcuts)


@dataclass(frozen=True, slots=True)
class GatewayContext:
    """The dependencies that a gateway gets from its process, a broker or a process of its own."""

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
    """Fetches decisions before `authorize` is asked for them."""
    shows: Authorize | None = None
    """Decides what lists include, without a record of what they hide; None where `authorize` does."""
    learn_shown: Learn = learn_nothing
    """Fetches decisions before `shows` is asked for them."""
    users: HttpUsers | None = None
    """Checks of users; None where clients do not log in."""
    quota: UserQuota | None = None
    """Quotas of users; None where there are none."""
