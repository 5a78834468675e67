"""Metrics of the schedules that this broker owns."""

from __future__ import annotations

from penstock.objects.coordinator import ObjectCoordinator
from penstock.observability.metrics import BrokerMetrics
from penstock.schedules.agent import FiringCounts, ScheduleAgent
from penstock.schedules.schedule import Schedule


class ScheduleMetrics:
    def __init__(self, schedules: ObjectCoordinator[Schedule], counts: FiringCounts) -> None:
        self._schedules = schedules
        self._counts = counts

    def show(self, metrics: BrokerMetrics) -> None:
        counts = self._counts
        metrics.add_gauge("penstock_schedules", "Schedules owned by this broker.", self._count)
        metrics.add_gauge(
            "penstock_schedules_failing",
            "Schedules whose last attempt to write a message has failed.",
            self._count_failing,
        )
        metrics.add_counter(
            "penstock_schedule_firings", "Messages that schedules have written.", lambda: counts.fired
        )
        metrics.add_counter(
            "penstock_schedule_missed",
            "Times of schedules that were missed and not made up for, because of the schedule's catch-up.",
            lambda: counts.missed,
        )
        metrics.add_counter(
            "penstock_schedule_unknown_records",
            "Records in the log of schedules that could not be decoded and were skipped.",
            lambda: self._schedules.unknown_records,
        )

    def _count(self) -> int:
        return sum(len(shard) for shard in self._schedules.shards)

    def _count_failing(self) -> int:
        return sum(
            1
            for shard in self._schedules.shards
            for agent in shard.agents
            if isinstance(agent, ScheduleAgent) and agent.problem
        )
