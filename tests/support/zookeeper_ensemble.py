"""An ensemble of ZooKeeper servers on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from penstock.cli.cluster.zookeeper_process import EnsembleMember, ZooKeeperProcess


class ZooKeeperEnsemble:
    """Servers that start and stop together; a majority of them can serve."""

    def __init__(self, directory: str, members: Sequence[EnsembleMember]) -> None:
        self.servers = [
            ZooKeeperProcess(os.path.join(directory, str(number)), members, number)
            for number in range(1, len(members) + 1)
        ]

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def start(self) -> None:
        for server in self.servers:
            server.spawn()
        try:
            for server in self.servers:
                server.wait_until_serving()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for server in self.servers:
            server.stop()
