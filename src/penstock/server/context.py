"""Dependencies of the request handlers, in one object."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random  # noqa: TID251 - the type; the numbers come from the environment
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.cluster.acl_admin import AclAdministration
from penstock.cluster.administration import Administration
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.partition_admin import PartitionAdministration
from penstock.config import BrokerConfig
from penstock.groups.coordinator import GroupCoordinator
from penstock.model import BrokerId, TopicPartition
from penstock.net.connection import Connection, Traffic
from penstock.observability.alarms import Alarms
from penstock.observability.metrics import BrokerMetrics
from penstock.replication.replica_manager import ReplicaManager
from penstock.server.authorization import Authorization
from penstock.server.client_quotas import ClientQuotas
from penstock.server.connection_numbers import ConnectionNumbers
from penstock.server.fetch_sessions import FetchSessions
from penstock.server.long_polls import LongPolls
from penstock.server.lost_leaders import LostLeaders
from penstock.server.marker_writing import MarkerWriter
from penstock.server.produce_routes import ProduceRoutes
from penstock.server.producer_ids import ProducerIds
from penstock.server.security import AllowAll, Authorizer
from penstock.server.share_services import ShareServices
from penstock.storage.disk import Disk
from penstock.storage.log_manager import LogManager
from penstock.threads import Threads
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.hanging import HangingTransactions
from penstock.transactions.verification import Verifier

if TYPE_CHECKING:
    from penstock.server.acceptor import WatchedConnection
    from penstock.server.acknowledged.retention import AcknowledgedRetention
    from penstock.server.dispatch import Session
    from penstock.server.draining.draining import Draining
    from penstock.server.http_accounts import HttpAccounts
    from penstock.server.inspection.activity import Activity
    from penstock.server.objects.services import ObjectServices
    from penstock.server.queue_upkeep.upkeep import QueueUpkeep


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
    acl_admin: AclAdministration
    logs: LogManager
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share: ShareServices
    objects: ObjectServices
    verifier: Verifier
    marker_writer: MarkerWriter
    hanging_transactions: HangingTransactions
    connection_numbers: ConnectionNumbers
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    long_polls: LongPolls
    authorization: Authorization
    metrics: BrokerMetrics
    alarms: Alarms
    random: Random
    authorizer: Authorizer = field(default_factory=AllowAll)
    """Authorizer in force; replaced when the configuration changes."""
    quotas: ClientQuotas | None = None
    """Client quotas; None while the cluster has none."""
    lost_leaders: LostLeaders = field(default_factory=LostLeaders)
    produce_routes: ProduceRoutes = field(default_factory=ProduceRoutes)
    recent_lines: Sequence[Mapping[str, object]] = ()
    """The last lines of the broker's log."""
    connections: Mapping[Connection, WatchedConnection] = field(default_factory=dict)
    """Open client connections. This is the acceptor's table itself, not a copy."""
    traffic: Traffic | None = None
    _applied_quotas: object = None
    http_accounts: HttpAccounts | None = None
    """Accounts of HTTP clients; None until the broker has started."""
    draining: Draining | None = None
    acknowledged: AcknowledgedRetention | None = None
    queue_upkeep: QueueUpkeep | None = None
    """Background work for queues; it sets itself here when it is created from this context."""
    activity: Activity | None = None
    """Journals of activity for gateways; None until the first gateway requests them."""

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    def apply_policy(self) -> None:
        """Update the authorizer and the quotas from the configuration and the cluster image."""
        changes = self.authorization.changes
        self.authorizer = self.authorization.follow(self.config, self.metadata.image, self.authorizer)
        if self.authorization.changes != changes:
            self.long_polls.look_again()
        stored = self.metadata.image.quotas
        if stored is self._applied_quotas:
            return
        self._applied_quotas = stored
        quotas = {entity: each.values for entity, each in stored.items() if each.values}
        if quotas:
            self.quotas = self.quotas or ClientQuotas(self.clock, self.metrics.throttled_users.increment)
            self.quotas.configure(quotas)
        else:
            self.quotas = None

    def on_draining_write(self, session: Session, name: TopicPartition) -> None:
        """Record that a client wrote to a partition that is being removed."""
        if self.draining is not None:
            self.draining.on_write(session, name)

    def source_of(self, topic: str) -> str:
        """Name of the topic that stores the records of a topic: the source if the topic is a view, else the topic
        itself.
        """
        return self.metadata.image.views.get(topic, topic)

    async def write_checkpoints(self, *, both: bool = False) -> None:
        """Write the checkpoint files with log start offsets and high watermarks durably. The write completes even if
        the caller is cancelled.
        """

        async def write() -> None:
            async with self.replicas.writing_checkpoints:
                await self.threads.run("background", partial(self.logs.write_checkpoints, both=both))

        writing = asyncio.ensure_future(write())
        writing.add_done_callback(_take_note)
        await asyncio.shield(writing)


def _take_note(done: asyncio.Task[None]) -> None:
    """Mark the exception as retrieved, so that asyncio does not log it. The caller gets it, unless the caller was
    cancelled.
    """
    if not done.cancelled():
        done.exception()
