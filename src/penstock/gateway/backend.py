"""The cluster as the gateway sees it: the one narrow interface between HTTP and Kafka.

The gateway is a client: inside a broker and in a process of its own it reaches the cluster through a
`Backend` and nothing else. Failures are BrokerErrors with Kafka's code, OutcomeUnknown, or Unreachable.
Returned values are frozen.

It has four sets of connections, because responses on a connection come in the order of the requests: produce
requests and commits wait for an fsync and administration may take seconds, so reads share a connection with
neither.
"""

from __future__ import annotations

from penstock.gateway.context import CLIENT_ID, ClusterAddress
from penstock.gateway.records import GatewayRecords
from penstock.internal_client.brokers import Brokers
from penstock.internal_client.configs import Configs
from penstock.internal_client.groups import Groups
from penstock.internal_client.keyed_reads import KeyedReads
from penstock.internal_client.producer import IdempotentProducer
from penstock.internal_client.records import Records
from penstock.internal_client.topics import Topics
from penstock.internal_client.transactions import Transactions
from penstock.observability.alarms import Alarms
from penstock.threads import Threads


class Backend:
    def __init__(
        self, cluster: ClusterAddress, threads: Threads, delivery_seconds: float, alarms: Alarms
    ) -> None:
        self.routes = cluster.routes()
        """Routes for members of groups, which send their heartbeats and commits themselves."""
        self._reads = cluster.routes()
        self._administration = cluster.routes()
        self._writes = cluster.routes()
        self._producer = IdempotentProducer(self._writes, delivery_seconds)
        self._keyed_reads = KeyedReads(cluster.network, self._reads, CLIENT_ID)
        self.records = GatewayRecords(self._reads, self._producer, self._keyed_reads, threads, alarms)
        self.topics = Topics(self._administration)
        self.configs = Configs(self._administration)
        self.groups = Groups(self._administration, Records(self._reads))
        self.transactions = Transactions(self._administration)
        self.brokers = Brokers(self._administration)

    async def close(self) -> None:
        """Close all connections; requests that still wait fail."""
        await self._producer.close()
        self._keyed_reads.close()
        for routes in (self.routes, self._reads, self._administration, self._writes):
            routes.close()
