"""The client of one cluster: calls for every kind of request, over one set of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from penstock.config import parse_address
from penstock.internal_client.acl_decisions import AclDecisions
from penstock.internal_client.acls import AclCalls
from penstock.internal_client.api import RESPONSE_SECONDS
from penstock.internal_client.brokers import BrokerCalls
from penstock.internal_client.client_security import ClientSecurity
from penstock.internal_client.configs import ConfigCalls
from penstock.internal_client.dead_letters import DeadLetterCalls
from penstock.internal_client.groups import GroupCalls
from penstock.internal_client.inspection import InspectionCalls
from penstock.internal_client.pipelines import PipelineCalls
from penstock.internal_client.queue_messages import QueueMessages
from penstock.internal_client.queues import QueueCalls
from penstock.internal_client.quotas import QuotaCalls
from penstock.internal_client.reassignments import ReassignmentCalls
from penstock.internal_client.records import RecordCalls
from penstock.internal_client.retry_policies import RetryPolicyCalls
from penstock.internal_client.routes import Routes
from penstock.internal_client.schedules import ScheduleCalls
from penstock.internal_client.share_groups import ShareGroupCalls
from penstock.internal_client.topics import TopicCalls
from penstock.internal_client.transactions import TransactionCalls
from penstock.internal_client.users import UserCalls
from penstock.internal_client.views import ViewCalls
from penstock.internal_client.webhooks import WebhookCalls
from penstock.net.network import TcpNetwork

T = TypeVar("T")


class InternalClient:
    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.topics = TopicCalls(routes)
        self.configs = ConfigCalls(routes)
        self.views = ViewCalls(self.topics, self.configs)
        self.records = RecordCalls(routes)
        self.groups = GroupCalls(routes, self.records)
        self.share_groups = ShareGroupCalls(routes)
        self.queues = QueueCalls(routes)
        self.queue_messages = QueueMessages(routes)
        self.webhooks = WebhookCalls(routes, self.queues)
        self.dead_letters = DeadLetterCalls(routes)
        self.retry_policies = RetryPolicyCalls(routes)
        self.transactions = TransactionCalls(routes)
        self.schedules = ScheduleCalls(routes)
        self.brokers = BrokerCalls(routes)
        self.reassignments = ReassignmentCalls(routes)
        self.users = UserCalls(routes)
        self.acls = AclCalls(routes)
        self.quotas = QuotaCalls(routes)
        self.inspection = InspectionCalls(routes)
        self.pipelines = PipelineCalls(routes)
        self.acl_decisions = AclDecisions(self.acls, self.configs, self.inspection)

    @classmethod
    def to(
        cls,
        bootstrap: str,
        client_id: str,
        patience_seconds: float,
        response_seconds: float = RESPONSE_SECONDS,
        security: ClientSecurity | None = None,
    ) -> Self:
        """Create a client of the cluster at `HOST:PORT,HOST:PORT`. ValueError names the invalid part of
        another text.

        Nothing is connected before the first request. `patience_seconds` limits the retries of each request.
        After `response_seconds` without a response, the request is sent to another broker. `security` has the
        TLS settings and the login.
        """
        addresses = [parse_address(text.strip()) for text in bootstrap.split(",")]
        routes = Routes(
            (security or ClientSecurity()).network(TcpNetwork()),
            addresses,
            client_id,
            patience_seconds=patience_seconds,
            response_seconds=response_seconds,
        )
        return cls(routes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.queue_messages.close()
        self.routes.close()


def run(client: InternalClient, work: Callable[[InternalClient], Awaitable[T]]) -> T:
    """Run `work` with the client in a new event loop, and close the client."""

    async def body() -> T:
        async with client:
            return await work(client)

    return asyncio.run(body())
