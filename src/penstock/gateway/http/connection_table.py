"""Table of open HTTP connections by client address: admits new connections, and evicts old ones to make room.

By default one address may have a quarter of the connections; trusted proxies have no limit. When the maximum
number of connections is reached, the address with the most connections loses its oldest connection that is
idle or waits. A refused connection still gets a response for `/health` and `/metrics`: a reserve beyond the
maximum is kept for that, so that waiting clients never make a process look dead. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Protocol

RESERVED_CONNECTIONS = 64
"""Number of connections beyond the maximum that are kept for `/health` and `/metrics`."""
RESERVED_PER_ADDRESS = 8
_ADDRESSES_LOOKED_AT = 4
_IPV6_PREFIX = 64
"""Length of the IPv6 prefix that counts as one address, because one host may use every address of its network."""

Networks = tuple[IPv4Network | IPv6Network, ...]


class ClientConnection(Protocol):
    """An HTTP or WebSocket connection."""

    @property
    def address(self) -> str: ...

    @property
    def is_idle(self) -> bool:
        """True if no request is in progress."""
        ...

    @property
    def is_waiting(self) -> bool:
        """True if the connection waits for messages or for its client: a long poll, a stream, an incomplete
        body.
        """
        ...

    def evict(self) -> None:
        """Close the connection. If the protocol allows it, a response tells the client to connect again later."""
        ...


class RefusedConnection:
    """Reason why a connection is refused: the HTTP status and the text of the problem document."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail


class ConnectionTable:
    def __init__(self, maximum: int, of_address: int | None = None, trusted: Iterable[str] = ()) -> None:
        """Create a table for `maximum` connections, `of_address` from each address (a quarter if None). `trusted`
        has addresses or networks of proxies.
        """
        self._maximum = maximum
        self._of_address = max(1, maximum // 4) if of_address is None else of_address
        self._trusted: Networks = tuple(ip_network(text) for text in trusted)
        self._by_address: dict[str, dict[ClientConnection, None]] = {}
        self._reserve: dict[ClientConnection, None] = {}
        self._count = 0
        self.evictions = 0
        self.refusals = 0

    def admit(self, connection: ClientConnection) -> RefusedConnection | None:
        """Add a connection, and evict an older one if needed. Returns the reason if the connection is refused: then
        it may use only `/health` and `/metrics`.
        """
        address = client_of(connection.address)
        own = self._by_address.get(address, {})
        if len(own) >= self._of_address and not self._is_trusted(address):
            if not self._evict(_oldest(own, may_wait=False)):
                return self._refuse(
                    connection,
                    429,
                    f"this address has {len(own)} connections, which is the maximum; close one, or wait for a response",
                )
        elif self._count >= self._maximum and not self._make_room(len(own) + 1):
            return self._refuse(
                connection, 503, "the gateway has the maximum number of connections; connect again later"
            )
        self._by_address.setdefault(address, {})[connection] = None
        self._count += 1
        return None

    def replace(self, old: ClientConnection, new: ClientConnection) -> None:
        """Replace an HTTP connection by the WebSocket that it was upgraded to."""
        own = self._by_address.get(client_of(old.address), {})
        if old in own:
            del own[old]
            own[new] = None

    def remove(self, connection: ClientConnection) -> None:
        self._reserve.pop(connection, None)
        address = client_of(connection.address)
        own = self._by_address.get(address)
        if own is None or connection not in own:
            return
        del own[connection]
        self._count -= 1
        if not own:
            del self._by_address[address]

    def _make_room(self, newcomers: int) -> bool:
        """Evict a connection; return False if there is none to evict. `newcomers` is the number of connections of
        the new connection's address, the new one included: only addresses with more lose waiting connections.
        """
        for address in nlargest(_ADDRESSES_LOOKED_AT, self._by_address, key=self._count_of):
            is_greedier = self._count_of(address) > newcomers and not self._is_trusted(address)
            if self._evict(_oldest(self._by_address[address], may_wait=is_greedier)):
                return True
        idle = (each for own in self._by_address.values() for each in own if each.is_idle)
        return self._evict(next(idle, None))

    def _count_of(self, address: str) -> int:
        return len(self._by_address[address])

    def _evict(self, victim: ClientConnection | None) -> bool:
        if victim is None:
            return False
        self.remove(victim)
        self.evictions += 1
        victim.evict()
        return True

    def _refuse(self, connection: ClientConnection, status: int, detail: str) -> RefusedConnection:
        address = client_of(connection.address)
        of_address = [each for each in self._reserve if client_of(each.address) == address]
        if len(of_address) >= RESERVED_PER_ADDRESS:
            self._evict(of_address[0])
        elif len(self._reserve) >= RESERVED_CONNECTIONS:
            self._evict(next(iter(self._reserve)))
        self._reserve[connection] = None
        self.refusals += 1
        return RefusedConnection(status, detail)

    def _is_trusted(self, address: str) -> bool:
        if not self._trusted:
            return False
        network = ip_network(address, strict=False)
        return any(network.version == each.version and network.subnet_of(each) for each in self._trusted)  # type: ignore[arg-type]


def _oldest(connections: Iterable[ClientConnection], *, may_wait: bool) -> ClientConnection | None:
    """Return the oldest idle connection. If there is none and `may_wait` is set, return the oldest waiting one."""
    waiting: ClientConnection | None = None
    for each in connections:
        if each.is_idle:
            return each
        if may_wait and waiting is None and each.is_waiting:
            waiting = each
    return waiting


def client_of(address: str) -> str:
    """Return the key that connections are counted by: an IPv4 address, or the /64 network of an IPv6 address."""
    if ":" not in address:
        return address
    parsed = ip_address(address.partition("%")[0])
    assert isinstance(parsed, IPv6Address)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((parsed, _IPV6_PREFIX), strict=False))
