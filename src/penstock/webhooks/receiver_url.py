"""URLs of receivers, and the addresses that webhooks may connect to. Pure.

A webhook makes the cluster send requests for its author. So that nobody reaches machines behind the firewall this way,
private, loopback, link-local and other special addresses are refused unless `webhook.allow.private.addresses` allows
them. The rule is applied to the addresses that a name resolves to, for each connection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

MAX_URL_CHARACTERS: Final = 2_048
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]+\]", re.ASCII)
_VISIBLE = re.compile(r"[\x21-\x7e]+", re.ASCII)
_NAT64: Final = IPv6Network("64:ff9b::/96")
Address = IPv4Address | IPv6Address


class InvalidUrl(ValueError):
    """The text is not a URL that a webhook can call."""


class Receiver(NamedTuple):
    """The parts of a URL that a call needs."""

    scheme: str
    host: str
    """Name or address, without brackets."""
    port: int
    target: str
    """Path and query."""

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str) -> Receiver:
    """Parse the URL of a receiver; InvalidUrl says what is wrong with it, and never contains credentials."""
    if len(text) > MAX_URL_CHARACTERS:
        raise InvalidUrl(f"the URL has {len(text)} characters; {MAX_URL_CHARACTERS} are allowed")
    if not _VISIBLE.fullmatch(text):
        raise InvalidUrl("the URL is empty, or has characters that must be percent-encoded")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InvalidUrl(f"the URL is malformed: {error}") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise InvalidUrl(f"the scheme {parts.scheme[:20]!r} is not http or https")
    if "@" in parts.netloc:
        raise InvalidUrl("the URL has credentials; receivers check the signature instead")
    host = parts.netloc if port is None else parts.netloc.rpartition(":")[0]
    if port == 0 or not _HOST.fullmatch(host.rstrip(":")):
        raise InvalidUrl("the URL needs a host name or an address, and a port between 1 and 65535 if any")
    if parts.fragment:
        raise InvalidUrl("the URL has a fragment, which servers never see")
    path = parts.path or "/"
    target = f"{path}?{parts.query}" if parts.query else path
    name = host.rstrip(":").strip("[]").lower()
    return Receiver(parts.scheme, name, port or DEFAULT_PORTS[parts.scheme], target)


def redirected(receiver: Receiver, location: str) -> Receiver:
    """Receiver of a redirect; InvalidUrl for a location that is no URL, or leaves TLS."""
    found = parse_url(urljoin(str(receiver), location))
    if receiver.scheme == "https" and found.scheme != "https":
        raise InvalidUrl("the redirect goes from https to http")
    return found


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Addresses that webhooks may connect to: public ones, and those of `networks`."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    allows_all: bool = False

    def allows(self, text: str) -> bool:
        """Whether a connection to this address may be made. False for a text that is no address."""
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
            return True  # the embedded address decides
        return address.is_global and not address.is_multicast

    def choose(self, addresses: Sequence[str]) -> str | None:
        """The first address that is allowed; None if there is none."""
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
    """IPv4 addresses inside an IPv6 address that routers or the kernel unpack."""
    if isinstance(address, IPv4Address):
        return ()
    found: list[Address] = [each for each in (address.ipv4_mapped, address.sixtofour) if each is not None]
    if address in _NAT64:
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return (*found, *(address.teredo or ()))
