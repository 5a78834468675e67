"""The gateway: constructs all of its parts, and closes them in reverse order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.config import GATEWAY_DELIVERY_TIMEOUT_MS
from penstock.gateway import (
    cluster_endpoints,
    config_endpoints,
    group_endpoints,
    mailbox_endpoints,
    message_endpoints,
    topic_endpoints,
)
from penstock.gateway.backend import Backend
from penstock.gateway.context import GatewayContext
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.health import Health
from penstock.gateway.http.application import GatewayApplication
from penstock.gateway.mailbox import Mailbox
from penstock.gateway.push.service import PushService
from penstock.gateway.system_endpoints import system_endpoints

SETTLE_SECONDS = 2.0
RESOURCES = (
    *mailbox_endpoints.ENDPOINTS,
    *message_endpoints.ENDPOINTS,
    *topic_endpoints.ENDPOINTS,
    *group_endpoints.ENDPOINTS,
    *cluster_endpoints.ENDPOINTS,
    *config_endpoints.ENDPOINTS,
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
        self._backend = Backend(context.cluster, context.threads, delivery_seconds, context.alarms)
        self._mailbox = Mailbox(self._backend, config, clock)
        endpoint_context = EndpointContext(
            self._backend,
            config,
            clock,
            context.threads,
            context.log,
            self._mailbox,
            context.authorize,
        )
        self._push = PushService(endpoint_context, context.id_prefix)
        self.endpoints = system_endpoints((*RESOURCES, *self._push.endpoints()), health, render_metrics)
        self.application = GatewayApplication(
            endpoint_context, self.endpoints, self._push.sockets(), context.metrics, context.id_prefix
        )
        context.metrics.add_gauge(
            "penstock_http_open_requests",
            "HTTP requests without a response yet, long polls and streams included.",
            lambda: self.application.limits.open_requests,
        )
        context.metrics.add_counter(
            "penstock_http_throttled",
            "HTTP requests refused because a limit of their client was exceeded.",
            lambda: self.application.limits.refusals,
        )
        context.metrics.add_gauge(
            "penstock_push_streams", "Open streams of topics.", lambda: self._push.open_streams
        )
        context.metrics.add_counter(
            "penstock_push_events", "Messages sent to streams of topics.", lambda: self._push.events_sent
        )

    def drain(self) -> None:
        """End long polls and streams, so that a stop does not wait for them."""
        self.application.stop()

    async def settle(self) -> None:
        await self.application.settle(SETTLE_SECONDS)

    async def close(self) -> None:
        self.application.stop()
        self._push.close()
        await self._mailbox.close()
        await self._backend.close()
