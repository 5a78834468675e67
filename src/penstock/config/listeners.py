"""Listeners in Kafka's grammar: `NAME://HOST:PORT`, separated by commas, and their security protocols.

The short form, `host` and `port`, is one listener with the name PLAINTEXT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.config.address import parse_address
from penstock.config.types import Kind
from penstock.errors import ConfigError
from penstock.model import Address

PREFIX = "listener.name."
"""Prefix of the name of an option that is set for one listener: `listener.name.<name>.<option>`."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ANY_HOST = "0.0.0.0"


class SecurityProtocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class ListenerEndpoint:
    """Address of a listener; the name is empty if only `HOST:PORT` was given."""

    name: str
    address: Address

    def __str__(self) -> str:
        return f"{self.name}://{self.address}" if self.name else str(self.address)


@dataclass(frozen=True, slots=True)
class Listener:
    name: str
    protocol: SecurityProtocol
    address: Address
    """Address to bind; port 0 picks a free port."""


Endpoints = tuple[ListenerEndpoint, ...]
ProtocolMap = Mapping[str, SecurityProtocol]


@dataclass(frozen=True, slots=True)
class EndpointList:
    """Type of `listeners` and `advertised.listeners`."""

    is_bound: bool
    """True for addresses to bind: the host may be empty and the port 0, and a name is required."""

    @property
    def kind(self) -> Kind:
        return Kind.STRING

    @property
    def expected(self) -> str:
        if self.is_bound:
            return "NAME://HOST:PORT, separated by commas"
        return "HOST:PORT or NAME://HOST:PORT, separated by commas"

    def parse(self, text: str) -> Endpoints:
        endpoints = tuple(self._parse_one(entry.strip()) for entry in text.split(","))
        names = [endpoint.name for endpoint in endpoints]
        if len(set(names)) < len(names) or ("" in names and len(names) > 1):
            raise ValueError(text)
        return endpoints

    def format(self, value: Endpoints) -> str:
        return ",".join(map(str, value))

    def _parse_one(self, text: str) -> ListenerEndpoint:
        name, separator, place = text.rpartition("://")
        if (separator or self.is_bound) and not _NAME.fullmatch(name):
            raise ValueError(text)
        return ListenerEndpoint(
            name.upper(), self._bound_address(place) if self.is_bound else parse_address(place)
        )

    @staticmethod
    def _bound_address(place: str) -> Address:
        host, _, port = place.rpartition(":")
        if port == "0":
            return Address(parse_address(f"{host or _ANY_HOST}:1").host, 0)
        return parse_address(f"{_ANY_HOST}{place}" if not host else place)


@dataclass(frozen=True, slots=True)
class ProtocolMapType:
    """Type of `listener.security.protocol.map`."""

    expected: str = "NAME:PROTOCOL, separated by commas, with PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"

    @property
    def kind(self) -> Kind:
        return Kind.STRING

    def parse(self, text: str) -> ProtocolMap:
        protocols: dict[str, SecurityProtocol] = {}
        for entry in text.split(","):
            name, separator, protocol = entry.strip().partition(":")
            if not separator or not _NAME.fullmatch(name):
                raise ValueError(text)
            protocols[name.upper()] = SecurityProtocol(protocol.strip().upper())
        return protocols

    def format(self, value: ProtocolMap) -> str:
        return ",".join(f"{name}:{protocol}" for name, protocol in value.items())


DEFAULT_PROTOCOLS: ProtocolMap = {protocol.value: protocol for protocol in SecurityProtocol}


@dataclass(frozen=True, slots=True)
class ListenerPlan:
    """Listeners of a broker with their advertised addresses; consistent with each other."""

    listeners: tuple[Listener, ...]
    inter_broker: Listener
    """Listener that other brokers and the broker's own gateway connect to."""
    advertised: Mapping[str, Address]
    """Advertised addresses by listener name. A listener without an entry advertises the address it binds."""

    def __iter__(self) -> Iterator[Listener]:
        return iter(self.listeners)

    def advertised_address(self, listener: Listener, port: int) -> Address:
        """Advertised address of the listener. `port` is the port that was bound."""
        if listener.name in self.advertised:
            return self.advertised[listener.name]
        bound = Address(listener.address.host, port)
        return Address("localhost", port) if bound.is_wildcard else bound


def make_plan(
    bound: Endpoints, protocols: ProtocolMap, advertised: Endpoints | None, inter_broker: str | None
) -> ListenerPlan:
    """Combine the settings into a plan. Raises ConfigError if they contradict each other."""
    known = {**DEFAULT_PROTOCOLS, **protocols}
    for endpoint in bound:
        if endpoint.name not in known:
            raise ConfigError(
                f"listeners: {endpoint.name} has no protocol; add {endpoint.name}:SASL_SSL, or another "
                "protocol, to listener.security.protocol.map"
            )
    listeners = tuple(Listener(each.name, known[each.name], each.address) for each in bound)
    by_name = {listener.name: listener for listener in listeners}
    between = (inter_broker or listeners[0].name).upper()
    if between not in by_name:
        raise ConfigError(f"inter.broker.listener.name={between!r}: give one of {', '.join(by_name)}")
    return ListenerPlan(listeners, by_name[between], _advertised(advertised or (), by_name))


def _advertised(endpoints: Endpoints, by_name: Mapping[str, Listener]) -> dict[str, Address]:
    if len(endpoints) == 1 and not endpoints[0].name:
        if len(by_name) > 1:
            raise ConfigError(
                f"advertised.listeners={endpoints[0]}: there are several listeners; give NAME://HOST:PORT for each"
            )
        return dict.fromkeys(by_name, endpoints[0].address)
    for endpoint in endpoints:
        if endpoint.name not in by_name:
            raise ConfigError(
                f"advertised.listeners={endpoint}: there is no listener of this name; "
                f"the listeners are {', '.join(by_name)}"
            )
    return {endpoint.name: endpoint.address for endpoint in endpoints}
