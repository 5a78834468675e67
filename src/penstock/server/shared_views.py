"""Removal of unused shared views: the controller asks all brokers which views are used, and deletes a view after ten
minutes without a use.

A view counts as used while one of its partitions is read, a group subscribes to it, or a group has committed offsets in
it. Nothing is removed while a broker does not respond, or while the offsets of some group are not loaded. A consumer
that returns writes the filter of its view again, which makes a new version of the view, and the ten minutes begin anew.
Loop thread only.
"""

from __future__ import annotations

from typing import Any

from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.errors import BrokerError, PenstockError
from penstock.internal_client.inspection import ask_broker
from penstock.model import BrokerId
from penstock.observability.logs import Logger
from penstock.server.context import BrokerContext
from penstock.server.inspection.used_views import find_used_views

ROUND_SECONDS = 60.0
UNUSED_ROUNDS = 10
"""Number of consecutive rounds without a use after which a view is removed."""


class SharedViews:
    def __init__(self, context: BrokerContext, logger: Logger) -> None:
        self._context = context
        self._logger = logger
        self._unused: dict[tuple[str, int], int] = {}
        """Number of consecutive rounds without a use, by name and version of the view."""

    async def run(self) -> None:
        """Check all shared views once."""
        image = self._context.image
        shared = {name: image.topics[name] for name in image.views if image.topics[name].is_shared_view}
        if not shared or image.controller_id != self._context.node_id:
            self._unused = {}
            return
        used = await self._used()
        if used is None:
            return
        counts = {(name, topic.version): name for name, topic in shared.items() if name not in used}
        self._unused = {key: self._unused.get(key, 0) + 1 for key in counts}
        due = [counts[key] for key, rounds in self._unused.items() if rounds > UNUSED_ROUNDS]
        if due:
            await self._remove(due)

    async def _used(self) -> set[str] | None:
        """Names of all used views; None if a broker did not respond or groups are still being loaded."""
        used: set[str] = set()
        shards = 0
        for broker_id in self._context.image.brokers:
            try:
                answer = await self._ask(broker_id)
            except (OSError, TimeoutError, PenstockError) as error:
                self._logger.warning_rarely(
                    "broker did not report which views are in use", broker=broker_id, error=error
                )
                return None
            used.update(answer["views"])
            shards += answer["shards"]
        offsets = self._context.image.topic(OFFSETS_TOPIC)
        return used if offsets is None or shards == len(offsets.partitions) else None

    async def _ask(self, broker_id: BrokerId) -> Any:
        if broker_id == self._context.node_id:
            return await find_used_views(self._context)
        return await self._context.share.states.links.send(
            broker_id, lambda connection: ask_broker(connection, "used_views", {})
        )

    async def _remove(self, names: list[str]) -> None:
        for name, outcome in zip(names, await self._context.administration.delete_topics(names), strict=True):
            if isinstance(outcome, BrokerError):
                self._logger.warning("shared view could not be removed", view=name, error=str(outcome))
            else:
                self._logger.info("unused shared view removed", view=name)
