"""Listeners of a broker: bound before the broker registers, opened when it serves clients."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config import Address, Listener
from penstock.net.network import Network
from penstock.server.acceptor import Acceptor
from penstock.server.broker_security import BrokerSecurity
from penstock.server.context import BrokerContext

LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Loopback address for each address that means all interfaces, for connections of a broker to itself."""


@dataclass(frozen=True, slots=True)
class BoundListeners:
    ports: dict[str, int]
    """Bound ports by listener name."""
    advertised: dict[str, Address]
    """Advertised addresses, by listener name."""
    between: Listener
    """Listener for connections between brokers."""

    @property
    def first_port(self) -> int:
        return next(iter(self.ports.values()))

    @property
    def address(self) -> Address:
        """Address for other brokers."""
        return self.advertised[self.between.name]

    @property
    def own_address(self) -> Address:
        """Address at which the broker connects to itself. With TLS this is the advertised address, which the
        certificate names.
        """
        if self.between.protocol.has_tls:
            return self.address
        host = self.between.address.host
        return Address(LOOPBACK.get(host, host), self.ports[self.between.name])


async def bind_listeners(
    acceptor: Acceptor, network: Network, context: BrokerContext, security: BrokerSecurity
) -> BoundListeners:
    """Bind all listeners; connections wait until the acceptor opens."""
    plan = context.config.listeners
    ports: dict[str, int] = {}
    for listener in plan:
        ports[listener.name] = await acceptor.listen(network, security.door(listener, context))
    advertised = {listener.name: plan.advertised_address(listener, ports[listener.name]) for listener in plan}
    return BoundListeners(ports, advertised, plan.inter_broker)
