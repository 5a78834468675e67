"""Gateway inside a broker: a client of the cluster like any other, with the broker itself as bootstrap."""

from __future__ import annotations

from penstock.config import BrokerConfig
from penstock.gateway.context import ClusterAddress, GatewayContext
from penstock.gateway.http.users import HttpUsers, current_user
from penstock.observability.logs import Logger
from penstock.server.context import BrokerContext
from penstock.server.environment import Environment
from penstock.server.security import ANONYMOUS, Operation, Principal, ResourceType


def gateway_context(
    broker: BrokerContext,
    config: BrokerConfig,
    own: ClusterAddress,
    environment: Environment,
    logger: Logger,
    users: HttpUsers | None,
) -> GatewayContext:
    """Return the context of the gateway; `own` is the address by which the broker reaches itself."""

    def authorize(host: str, operation: str, kind: str, name: str) -> bool:
        user = current_user.get()
        principal = ANONYMOUS if user is None else Principal("User", user)
        return broker.authorizer.authorize(principal, host, Operation[operation], ResourceType[kind], name)

    return GatewayContext(
        own,
        config,
        environment.clock,
        environment.threads,
        logger,
        broker.metrics,
        broker.alarms,
        f"{broker.node_id}-{environment.random.getrandbits(32):08x}",
        authorize,
        users,
    )
