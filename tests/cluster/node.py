"""Cluster parts of a broker without the broker, for tests of metadata changes."""

from __future__ import annotations

from random import Random
from uuid import UUID

from penstock.clock import SystemClock
from penstock.cluster.administration import Administration
from penstock.cluster.change_list import ChangeList
from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.controller import Controller
from penstock.cluster.controller_election import initialize_store
from penstock.cluster.coordination import CoordinationStore
from penstock.cluster.membership import BrokerIdentity, Membership
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.partition_admin import PartitionAdministration
from penstock.config import BrokerConfig
from penstock.model import BrokerEpoch, BrokerId
from penstock.observability.logs import Logger

NODE = BrokerId(1)


def quiet_log() -> Logger:
    return Logger(SystemClock(), lambda _: None, lambda *_: "")


class ClusterNode:
    """One session of a broker on a store."""

    def __init__(
        self,
        store: CoordinationStore,
        node_id: BrokerId = NODE,
        seed: int = 1,
        config: BrokerConfig | None = None,
    ) -> None:
        random = Random(seed)
        self.node_id = node_id
        self.store = store
        self.metadata = ClusterMetadata(store, node_id, config or BrokerConfig(), quiet_log())
        change_list = ChangeList(store, f"{node_id}-{random.getrandbits(64):x}")
        self.changes = ChangeMaker(store, self.metadata, node_id, change_list)
        self.administration = Administration(store, self.metadata, self.changes, random)
        self.partition_admin = PartitionAdministration(self.metadata, self.changes, quiet_log())
        self.membership = Membership(store, self.metadata, self.changes, node_id)
        self.controller = Controller(store, self.metadata, self.changes, change_list, node_id, quiet_log())
        self._random = random

    async def load(self) -> None:
        await initialize_store(self.store, self._random)
        await self.metadata.load()

    async def register(
        self,
        directory: int | None = None,
        clean_epoch: BrokerEpoch | None = None,
        *,
        has_logs: bool = True,
        kept_epoch: BrokerEpoch | None = None,
    ) -> BrokerEpoch:
        directory_id = UUID(int=self.node_id if directory is None else directory)
        machine_id = f"machine-{self.node_id}"
        identity = BrokerIdentity(
            "localhost", 9092, machine_id, directory_id, clean_epoch, kept_epoch=kept_epoch
        )
        return await self.membership.register(identity, lambda _: has_logs)

    async def start(self) -> ClusterNode:
        """Register as a broker does, without a clean stop before."""
        await self.load()
        await self.register()
        await self.membership.take_leadership()
        await self.controller.start()
        return self

    async def stop(self) -> None:
        await self.controller.stop()
        await self.changes.close()
        await self.metadata.close()
