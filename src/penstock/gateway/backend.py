"""The gateway's only access to the cluster: a set of Kafka clients for all calls of the endpoints.

Both inside a broker and in a process of its own, the gateway is a client: it reaches the cluster only through
a `Backend`. Failures are BrokerErrors with Kafka's code, OutcomeUnknown, or Unreachable. Returned values are
frozen.

The backend has six sets of connections. Responses on one connection come in the order of the requests, and
produce requests and commits wait for an fsync, while administration may take seconds. Reads and the figures of
the cluster therefore have connections of their own.
"""

from __future__ import annotations

from penstock.clock import Clock
from penstock.gateway.context import ClusterAddress
from penstock.gateway.records import GatewayRecords
from penstock.internal_client.acl_decisions import AclDecisions
from penstock.internal_client.acls import AclCalls
from penstock.internal_client.brokers import BrokerCalls
from penstock.internal_client.configs import ConfigCalls
from penstock.internal_client.dead_letters import DeadLetterCalls
from penstock.internal_client.delayed import DelayedCalls
from penstock.internal_client.groups import GroupCalls
from penstock.internal_client.inspection import InspectionCalls
from penstock.internal_client.keyed_reads import KeyedReads
from penstock.internal_client.pipelines import PipelineCalls
from penstock.internal_client.producer import IdempotentProducer
from penstock.internal_client.queue_messages import QueueMessages
from penstock.internal_client.queues import QueueCalls
from penstock.internal_client.quotas import QuotaCalls
from penstock.internal_client.reassignments import ReassignmentCalls
from penstock.internal_client.records import RecordCalls
from penstock.internal_client.replies import ReplyCalls
from penstock.internal_client.retry_policies import RetryPolicyCalls
from penstock.internal_client.schedules import ScheduleCalls
from penstock.internal_client.share_groups import ShareGroupCalls
from penstock.internal_client.topics import TopicCalls
from penstock.internal_client.transactions import TransactionCalls
from penstock.internal_client.users import UserCalls
from penstock.internal_client.views import ViewCalls
from penstock.internal_client.webhooks import WebhookCalls
from penstock.observability.alarms import Alarms
from penstock.threads import Threads


class Backend:
    def __init__(
        self,
        cluster: ClusterAddress,
        threads: Threads,
        delivery_seconds: float,
        alarms: Alarms,
        clock: Clock,
    ) -> None:
        self.routes = cluster.routes()
        """Connections for the group members of push streams, which send heartbeats and commits over them."""
        self._reads = cluster.routes()
        self._administration = cluster.routes()
        self._writes = cluster.routes()
        self.producer = self._producer = IdempotentProducer(self._writes, delivery_seconds)
        self._keyed_reads = KeyedReads(cluster.network, self._reads, cluster.client_id)
        self.records = GatewayRecords(self._reads, self._producer, self._keyed_reads, threads, alarms, clock)
        self.topics = TopicCalls(self._administration)
        self.acls = AclCalls(self._administration)
        self.quotas = QuotaCalls(self._administration)
        self.users = UserCalls(self._administration)
        self.configs = ConfigCalls(self._administration)
        self.views = ViewCalls(self.topics, self.configs)
        self.groups = GroupCalls(self._administration, RecordCalls(self._reads))
        self.share_groups = ShareGroupCalls(self._administration)
        self.transactions = TransactionCalls(self._administration)
        self.schedules = ScheduleCalls(self._administration)
        self.queues = QueueCalls(self._administration)
        self.webhooks = WebhookCalls(self._administration, self.queues)
        self._deliveries = cluster.routes()
        self.queue_messages = QueueMessages(self._deliveries)
        self.dead_letters = DeadLetterCalls(self._administration)
        self.retry_policies = RetryPolicyCalls(self._administration)
        self.brokers = BrokerCalls(self._administration)
        self.reassignments = ReassignmentCalls(self._administration)
        self._inspections = cluster.routes()
        self.inspection = InspectionCalls(self._inspections)
        self.acl_decisions = AclDecisions(self.acls, self.configs, self.inspection)
        self.replies = ReplyCalls(self.topics, self._keyed_reads, self._producer)
        self.pipelines = PipelineCalls(self._administration)
        self.delayed = DelayedCalls(self.topics, self.inspection)

    async def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        await self._producer.close()
        self._keyed_reads.close()
        self.queue_messages.close()
        for routes in (
            self.routes,
            self._reads,
            self._administration,
            self._writes,
            self._inspections,
            self._deliveries,
        ):
            routes.close()
