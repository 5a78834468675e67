"""Parts of the broker that handlers use, in one bundle."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from random import Random  # noqa: TID251 - the type; the numbers come from the environment

from penstock.clock import Clock
from penstock.cluster.administration import Administration
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.partition_admin import PartitionAdministration
from penstock.config import BrokerConfig
from penstock.groups.coordinator import GroupCoordinator
from penstock.model import BrokerId
from penstock.observability.alarms import Alarms
from penstock.observability.metrics import BrokerMetrics
from penstock.replication.replica_manager import ReplicaManager
from penstock.server.connection_numbers import ConnectionNumbers
from penstock.server.fetch_sessions import FetchSessions
from penstock.server.long_polls import LongPolls
from penstock.server.lost_leaders import LostLeaders
from penstock.server.marker_writing import MarkerWriter
from penstock.server.producer_ids import ProducerIds
from penstock.server.security import Authorizer
from penstock.storage.disk import Disk
from penstock.storage.log_manager import LogManager
from penstock.threads import Threads
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.hanging import HangingTransactions
from penstock.transactions.verification import Verifier


@dataclass(slots=True)
class BrokerContext:
    node_id: BrokerId
    config: BrokerConfig
    clock: Clock
    threads: Threads
    disk: Disk
    metadata: ClusterMetadata
    administration: Administration
    partition_admin: PartitionAdministration
    logs: LogManager
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verifier: Verifier
    marker_writer: MarkerWriter
    hanging_transactions: HangingTransactions
    connection_numbers: ConnectionNumbers
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    long_polls: LongPolls
    authorizer: Authorizer
    metrics: BrokerMetrics
    alarms: Alarms
    random: Random
    lost_leaders: LostLeaders = field(default_factory=LostLeaders)

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    async def write_checkpoints(self, *, both: bool = False) -> None:
        """Write log start offsets and high watermarks durably; a cancelled caller does not stop the write."""

        async def write() -> None:
            async with self.replicas.writing_checkpoints:
                await self.threads.run("background", partial(self.logs.write_checkpoints, both=both))

        writing = asyncio.ensure_future(write())
        writing.add_done_callback(_take_note)
        await asyncio.shield(writing)


def _take_note(done: asyncio.Task[None]) -> None:
    """Mark the error as handled: the caller has it, unless it was cancelled."""
    if not done.cancelled():
        done.exception()
