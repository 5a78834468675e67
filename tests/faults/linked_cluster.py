"""A cluster whose links a test controls: between brokers, from clients, and to ZooKeeper.

Brokers advertise the address of a proxy. Broker ids, CLIENTS and ZOOKEEPER name the ends of a link. The proxy
of a killed broker still accepts connections, so failover waits for the session timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
from links import Links

from support.cluster_processes import ClusterProcesses

CLIENTS = "clients"
ZOOKEEPER = "zookeeper"


def _named(end: int, _port: int) -> int:
    """The end of a link, whatever port connects."""
    return end


class LinkedCluster(ClusterProcesses):
    def __init__(self, directory: Path, size: int = 3, settings: Sequence[str] = ()) -> None:
        super().__init__(directory, size, settings)
        self.links = Links()
        self.addresses: dict[int, str] = {}
        for number, broker in self.brokers.items():
            port = self.links.listen(number, broker.port, self._who_connects)
            store = self.links.listen(ZOOKEEPER, self.zookeeper.port, partial(_named, number))
            self.addresses[number] = f"127.0.0.1:{port}"
            kept = [each for each in broker.settings if not each.startswith("zookeeper.connect=")]
            broker.settings = (
                *kept,
                f"advertised.listeners=127.0.0.1:{port}",
                f"zookeeper.connect=127.0.0.1:{store}",
            )

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    def cut(self, one: int, other: int) -> None:
        """Cut the link between two brokers, in both directions."""
        self.links.cut(one, other)
        self.links.cut(other, one)

    def hold(self, one: int, other: int) -> None:
        """Hold the link between two brokers: bytes do not arrive, and connections stay open."""
        self.links.hold(one, other)
        self.links.hold(other, one)

    def close(self) -> None:
        super().close()
        self.links.close()

    def _who_connects(self, port: int) -> int | str:
        for number in self.running:
            with suppress(psutil.NoSuchProcess, AssertionError):  # the broker may be killed at this moment
                own = psutil.Process(self.brokers[number].pid).net_connections("tcp4")
                if any(each.laddr.port == port for each in own):
                    return number
        return CLIENTS


StartCluster = Callable[..., LinkedCluster]
"""Function that starts a cluster with these settings for one test."""
