"""Host names by which browsers may reach the gateway (protection against DNS rebinding).

An attacker's web page can make its own name resolve to the address of a gateway in the user's network. Its requests
then count as same-origin, but have the attacker's name in Host. Browsers are recognised by Accept-Language, which a
page cannot remove. Their Host must be an IP address, a name of the loopback interface, the configured or an advertised
host, the host of an allowed origin, or a name of `gateway.allowed.hosts`. Requests of other programs are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from penstock.config import (
    ADVERTISED_LISTENERS,
    GATEWAY_ALLOWED_HOSTS,
    GATEWAY_ALLOWED_ORIGINS,
    HOST,
    BrokerConfig,
)
from penstock.gateway.http.problems import Problem

Headers = Mapping[bytes, bytes]

_LOOPBACK = "localhost"


class HostNames:
    def __init__(self, config: BrokerConfig) -> None:
        advertised = config[ADVERTISED_LISTENERS]
        origins = config[GATEWAY_ALLOWED_ORIGINS] or ()
        self._allowed = {
            config[HOST].lower(),
            *(endpoint.address.host.lower() for endpoint in advertised or ()),
            *(name_of(origin.partition("://")[2]) for origin in origins),
            *(name.lower() for name in config[GATEWAY_ALLOWED_HOSTS] or ()),
        }

    def check(self, headers: Headers) -> None:
        """Raise Problem if a browser used a host name that does not belong to this gateway."""
        if b"accept-language" not in headers:
            return
        name = name_of(headers.get(b"host", b"").decode(errors="replace"))
        if name and not self._is_allowed(name):
            raise Problem(
                421,
                f"browsers may not use the host name {name[:80]!r} for this gateway; "
                "gateway.allowed.hosts allows further names",
            )

    def _is_allowed(self, name: str) -> bool:
        if name in self._allowed or name == _LOOPBACK or name.endswith(f".{_LOOPBACK}"):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def name_of(host: str) -> str:
    """Return the name of a Host header, without port and brackets, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")
