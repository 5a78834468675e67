"""Addresses that webhooks may connect to. Pure.

With a webhook, a user makes the cluster send HTTP requests. So that users cannot reach machines behind the firewall,
private, loopback, link-local and other special addresses are refused unless the setting allows them. The rules are
applied for each connection, to the addresses that the host name resolves to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

_NAT64: Final = IPv6Network("64:ff9b::/96")
Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Addresses that webhooks may connect to: public ones, and those of `networks`."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    allows_all: bool = False

    def __str__(self) -> str:
        return "true" if self.allows_all else ",".join(map(str, self.networks)) or "false"

    def allows(self, text: str) -> bool:
        """Return True if a connection to this address is allowed. False for a text that is not an address."""
        try:
            address = ip_address(text.partition("%")[0])
        except ValueError:
            return False
        return all(self._allows(each) for each in (address, *_embedded(address)))

    def _allows(self, address: Address) -> bool:
        if self.allows_all or any(
            address in network for network in self.networks if network.version == address.version
        ):
            return True
        if address in _NAT64:
            return True  # decided by the embedded address
        return address.is_global and not address.is_multicast

    def choose(self, addresses: Sequence[str]) -> str | None:
        """Return the first allowed address; None if none is allowed."""
        return next((each for each in addresses if self.allows(each)), None)


def parse_address_rules(text: str) -> AddressRules:
    """Read `true`, `false` or networks such as `127.0.0.0/8,10.1.0.0/16`; ValueError for anything else."""
    value = text.strip().lower()
    if value in ("", "false"):
        return AddressRules()
    if value == "true":
        return AddressRules(allows_all=True)
    return AddressRules(tuple(ip_network(part.strip(), strict=False) for part in value.split(",")))


def _embedded(address: Address) -> tuple[Address, ...]:
    """IPv4 addresses embedded in an IPv6 address, to which routers or the kernel would deliver packets for it."""
    if isinstance(address, IPv4Address):
        return ()
    found: list[Address] = [each for each in (address.ipv4_mapped, address.sixtofour) if each is not None]
    if address in _NAT64:
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return (*found, *(address.teredo or ()))
