"""Access of webhooks to their queues, over connections of this broker to the leaders of the partitions. Loop thread
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.queue_messages import QueueMessages, Settlement
from penstock.internal_client.queue_settler import QueueSettler
from penstock.internal_client.queues import QueueCalls
from penstock.internal_client.routes import Routes
from penstock.webhooks.agent import Batch


class WebhookQueues:
    def __init__(self) -> None:
        self._routes: Routes | None = None
        self._queues: QueueCalls | None = None
        self._messages: QueueMessages | None = None
        self._settlers: dict[str, QueueSettler] = {}

    def connect(self, routes: Routes) -> None:
        """Set the routes to this broker and to others, once this broker listens. Before that, queues cannot be read."""
        self._routes, self._queues, self._messages = routes, QueueCalls(routes), QueueMessages(routes)

    def close(self) -> None:
        if self._routes is not None and self._messages is not None:
            self._messages.close()
            self._routes.close()

    def _connected(self) -> tuple[QueueCalls, QueueMessages]:
        if self._queues is None or self._messages is None:
            raise BrokerError(ErrorCode.coordinator_not_available, "the broker is starting")
        return self._queues, self._messages

    async def receive(
        self, queue: str, max_messages: int, wait_ms: int, lock_ms: int, interrupt: asyncio.Event
    ) -> Batch:
        queues, messages = self._connected()
        known = await queues.get_known(queue)
        found = await messages.receive(queue, known.topic, max_messages, wait_ms, lock_ms, interrupt)
        return Batch(known.sent_to, bool(known.back_off), found)

    async def settle(self, queue: str, settlement: Settlement) -> None:
        settler = self._settlers.get(queue)
        if settler is None:
            settler = self._settlers[queue] = QueueSettler(partial(self._settle_all, queue))
        await settler.settle(settlement)

    async def _settle_all(
        self, queue: str, settlements: Sequence[Settlement]
    ) -> Sequence[BrokerError | None]:
        queues, messages = self._connected()
        return await messages.settle(queue, (await queues.get_known(queue)).topic, settlements)
