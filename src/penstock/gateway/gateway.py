"""The gateway: constructs all of its parts, and closes them in reverse order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.config import CONSOLE_ENABLE, GATEWAY_DELIVERY_TIMEOUT_MS
from penstock.gateway import (
    acl_endpoints,
    cluster_endpoints,
    config_endpoints,
    dead_letter_endpoints,
    definition_endpoints,
    delayed_endpoints,
    figure_endpoints,
    group_endpoints,
    group_listing,
    group_reset,
    inspection_endpoints,
    mailbox_endpoints,
    message_endpoints,
    pipeline_endpoints,
    queue_endpoints,
    queue_message_endpoints,
    queue_request_endpoints,
    quota_endpoints,
    retry_policy_endpoints,
    right_endpoints,
    schedule_endpoints,
    session_endpoints,
    topic_endpoints,
    topic_listing,
    user_endpoints,
    view_endpoints,
    webhook_endpoints,
)
from penstock.gateway.backend import Backend
from penstock.gateway.console.endpoints import console_endpoints
from penstock.gateway.context import GatewayContext
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.health import Health
from penstock.gateway.http.application import GatewayApplication
from penstock.gateway.mailbox import Mailbox
from penstock.gateway.push.service import PushService
from penstock.gateway.search import endpoint as search_endpoint
from penstock.gateway.system_endpoints import system_endpoints
from penstock.gateway.view.cluster_view import ClusterView
from penstock.gateway.view.sampler import Sampler
from penstock.observability.metrics import BrokerMetrics

SETTLE_SECONDS = 2.0
RESOURCES = (
    *acl_endpoints.ENDPOINTS,
    *quota_endpoints.ENDPOINTS,
    *user_endpoints.ENDPOINTS,
    *mailbox_endpoints.ENDPOINTS,
    *message_endpoints.ENDPOINTS,
    *delayed_endpoints.ENDPOINTS,
    *search_endpoint.ENDPOINTS,
    *topic_listing.ENDPOINTS,
    *topic_endpoints.ENDPOINTS,
    *view_endpoints.ENDPOINTS,
    *group_listing.ENDPOINTS,
    *group_endpoints.ENDPOINTS,
    *group_reset.ENDPOINTS,
    *queue_endpoints.ENDPOINTS,
    *queue_message_endpoints.ENDPOINTS,
    *queue_request_endpoints.ENDPOINTS,
    *dead_letter_endpoints.ENDPOINTS,
    *retry_policy_endpoints.ENDPOINTS,
    *schedule_endpoints.ENDPOINTS,
    *pipeline_endpoints.ENDPOINTS,
    *webhook_endpoints.ENDPOINTS,
    *cluster_endpoints.ENDPOINTS,
    *config_endpoints.ENDPOINTS,
    *definition_endpoints.ENDPOINTS,
    *inspection_endpoints.ENDPOINTS,
    *figure_endpoints.ENDPOINTS,
    *right_endpoints.ENDPOINTS,
    *session_endpoints.ENDPOINTS,
)


class Gateway:
    def __init__(
        self,
        context: GatewayContext,
        health: Callable[[], Health],
        render_metrics: Callable[[], Awaitable[bytes]],
    ) -> None:
        config, clock = context.config, context.clock
        delivery_seconds = config[GATEWAY_DELIVERY_TIMEOUT_MS] / 1000
        self._backend = Backend(context.cluster, context.threads, delivery_seconds, context.alarms, clock)
        self._users = context.users
        self._mailbox = Mailbox(self._backend, config, clock)
        self._sampler = Sampler(ClusterView(self._backend.inspection, clock), clock, context.log)
        endpoint_context = EndpointContext(
            self._backend,
            config,
            clock,
            context.threads,
            context.log,
            self._mailbox,
            self._sampler,
            context.authorize,
            context.learn,
            context.shows,
            context.learn_shown,
            context.users,
            context.quota,
        )
        self._push = PushService(endpoint_context, context.id_prefix)
        has_console = config[CONSOLE_ENABLE]
        resources = (*RESOURCES, *self._push.endpoints(), *(console_endpoints(config) if has_console else ()))
        self.endpoints = system_endpoints(resources, health, render_metrics, has_console=has_console)
        self.application = GatewayApplication(
            endpoint_context, self.endpoints, self._push.sockets(), context.metrics, context.id_prefix
        )
        self._sampler.start()
        self._show(context.metrics)

    def _show(self, metrics: BrokerMetrics) -> None:
        metrics.add_gauge(
            "penstock_http_open_requests",
            "HTTP requests without a response yet, long polls and streams included.",
            lambda: self.application.limits.open_requests,
        )
        metrics.add_counter(
            "penstock_http_throttled",
            "HTTP requests refused because a limit of their client was exceeded.",
            lambda: self.application.limits.refusals,
        )
        metrics.add_gauge("penstock_push_streams", "Open streams of topics.", lambda: self._push.open_streams)
        metrics.add_counter(
            "penstock_push_events", "Messages sent to streams of topics.", lambda: self._push.events_sent
        )
        metrics.add_gauge(
            "penstock_queue_streams", "Open streams of queues.", lambda: self._push.queues.open_streams
        )
        metrics.add_counter(
            "penstock_queue_stream_messages",
            "Messages sent to streams of queues.",
            lambda: self._push.queues.messages_sent,
        )

    def drain(self) -> None:
        """End long polls and streams, so that the stop need not wait for them."""
        self.application.stop()

    async def settle(self) -> None:
        await self.application.settle(SETTLE_SECONDS)

    async def close(self) -> None:
        self.application.stop()
        await self._push.close()
        if self._users is not None:
            self._users.accounts.close()
        await self._sampler.close()
        await self._mailbox.close()
        await self._backend.close()
