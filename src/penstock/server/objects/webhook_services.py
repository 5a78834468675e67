"""Parts of a broker for webhooks: coordinator, agents, and connections to queues and receivers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.cluster.internal_topics import WEBHOOKS_TOPIC
from penstock.config import WEBHOOK_ALLOW_PRIVATE_ADDRESSES, WEBHOOK_SSL_CA_LOCATION
from penstock.config.address_rules import AddressRules
from penstock.internal_client.routes import Routes
from penstock.objects.coordinator import ObjectCoordinator
from penstock.objects.kind import Handle, ObjectKind
from penstock.observability.metrics import BrokerMetrics
from penstock.server.objects.webhook_queues import WebhookQueues
from penstock.state_log.shards import CoordinatorContext
from penstock.webhooks.agent import WebhookAgent, WebhookAgentContext
from penstock.webhooks.call_counts import CallCounts
from penstock.webhooks.http_caller import HttpCaller, WebhookCaller
from penstock.webhooks.sealing import unseal
from penstock.webhooks.webhook import Webhook, size_of


class WebhookServices:
    def __init__(
        self, context: CoordinatorContext, random: Callable[[], float], caller: WebhookCaller | None = None
    ) -> None:
        """Create the services. `random` draws numbers between 0 and 1; `caller` replaces HTTP calls in a simulation."""
        self._context = context
        self._random = random
        self._queues = WebhookQueues()
        self._counts = CallCounts()
        self._background: set[asyncio.Task[None]] = set()
        self.caller = caller or HttpCaller(self._rules, context.threads, self._authorities)
        self.coordinator = ObjectCoordinator(context, self._kind())

    @property
    def cluster_secret(self) -> str:
        return self._context.replicas.secret or self._context.metadata.image.cluster_id

    def connect(self, routes: Routes) -> None:
        """Set the routes over which queues are read, once this broker listens."""
        self._queues.connect(routes)

    async def close(self) -> None:
        """Wait up to a second for background work of the agents, such as the return of messages, and close all
        connections.
        """
        if self._background:
            await asyncio.wait(self._background, timeout=1.0)
        self.caller.close()
        self._queues.close()

    def show(self, metrics: BrokerMetrics) -> None:
        self._counts.show(metrics)
        metrics.add_gauge(
            "penstock_webhooks",
            "Webhooks that this broker makes calls for.",
            lambda: sum(len(shard) for shard in self.coordinator.shards),
        )

    def _rules(self) -> AddressRules:
        return self._context.metadata.config[WEBHOOK_ALLOW_PRIVATE_ADDRESSES]

    def _authorities(self) -> str | None:
        return self._context.metadata.config[WEBHOOK_SSL_CA_LOCATION]

    def _kind(self) -> ObjectKind[Webhook]:
        agents = WebhookAgentContext(
            self._context.node_id,
            self._queues,
            self.caller,
            self._context.clock,
            self._context.logger,
            self._random,
            lambda name, sealed: unseal(self.cluster_secret, name, sealed),
            self._counts,
            self._run_in_background,
        )

        def make_agent(handle: Handle[Webhook]) -> WebhookAgent:
            return WebhookAgent(handle, agents)

        return ObjectKind("webhook", WEBHOOKS_TOPIC, Webhook, make_agent, size_of)

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
