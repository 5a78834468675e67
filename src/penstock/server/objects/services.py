"""Parts of a broker for named objects: for each kind its coordinator, and the calls of clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.cluster.image import ImageChange
from penstock.cluster.internal_topics import SCHEDULES_TOPIC
from penstock.objects.coordinator import ObjectCoordinator
from penstock.objects.kind import Handle, ObjectKind
from penstock.observability.metrics import BrokerMetrics
from penstock.schedules.agent import FiringCounts, ScheduleAgent, ScheduleAgentContext
from penstock.schedules.alarm_clock import AlarmClock
from penstock.schedules.schedule import Schedule
from penstock.schedules.schedule_metrics import ScheduleMetrics
from penstock.server.objects.schedule_calls import served_schedules
from penstock.server.objects.schedule_sink import ScheduleTopics
from penstock.server.objects.served import ServedKind
from penstock.server.objects.webhook_calls import served_webhooks
from penstock.server.objects.webhook_services import WebhookServices
from penstock.server.topic_writer import TopicWriter
from penstock.state_log.shards import CoordinatorContext
from penstock.webhooks.http_caller import WebhookCaller
from penstock.wire.object_call import SCHEDULE, WEBHOOK

_STATE_BYTES: Final = 500
"""Approximate size in bytes of a schedule without its message."""


class ObjectServices:
    def __init__(
        self,
        context: CoordinatorContext,
        writer: TopicWriter,
        random: Callable[[], float],
        caller: WebhookCaller | None = None,
    ) -> None:
        """Create the services. `random` draws numbers between 0 and 1; `caller` replaces HTTP calls in a simulation."""
        self.schedule_topics = ScheduleTopics(writer, context.threads)
        self._alarms = AlarmClock(context.clock)
        self._counts = FiringCounts()
        self.schedules = ObjectCoordinator(context, self._schedule_kind(context))
        self.webhook_services = WebhookServices(context, random, caller)
        self._served = {
            SCHEDULE: served_schedules(self.schedules),
            WEBHOOK: served_webhooks(self.webhook_services.coordinator),
        }

    def _schedule_kind(self, context: CoordinatorContext) -> ObjectKind[Schedule]:
        agents = ScheduleAgentContext(
            self.schedule_topics, context.clock, self._alarms, context.logger, self._counts
        )

        def make_agent(handle: Handle[Schedule]) -> ScheduleAgent:
            return ScheduleAgent(handle, agents)

        return ObjectKind(
            "schedule",
            SCHEDULES_TOPIC,
            Schedule,
            make_agent,
            lambda schedule: schedule.definition.size_bytes + _STATE_BYTES,
        )

    def __contains__(self, kind: int) -> bool:
        return kind in self._served

    def __getitem__(self, kind: int) -> ServedKind:
        return self._served[kind]

    @property
    def coordinators(self) -> Iterator[ObjectCoordinator[Any]]:
        for kind in self._served.values():
            yield kind.coordinator

    def start(self) -> None:
        for coordinator in self.coordinators:
            coordinator.start()

    async def stop(self) -> None:
        for coordinator in self.coordinators:
            await coordinator.stop()
        self._alarms.close()
        await self.webhook_services.close()

    def on_image(self, change: ImageChange) -> None:
        for coordinator in self.coordinators:
            coordinator.on_image(change)

    def show(self, metrics: BrokerMetrics) -> None:
        ScheduleMetrics(self.schedules, self._counts).show(metrics)
        self.webhook_services.show(metrics)
