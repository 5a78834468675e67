"""Metrics of the partitions that are being removed and that this broker leads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from penstock.cluster.image import PartitionPhase
from penstock.observability.metrics import BrokerMetrics
from penstock.server.context import BrokerContext
from penstock.server.draining.draining import Draining


class DrainingMetrics:
    def __init__(self, context: BrokerContext, draining: Draining) -> None:
        self._context = context
        self._draining = draining

    def show(self, metrics: BrokerMetrics) -> None:
        for name, phase in (("draining", PartitionPhase.DRAINING), ("sealed", PartitionPhase.SEALED)):
            metrics.add_gauge(
                f"penstock_{name}_partitions",
                f"Partitions led by this broker that are {name}, because the topic has fewer partitions now.",
                partial(self._count, phase),
            )
        metrics.add_gauge(
            "penstock_draining_writers",
            "Clients that have written to draining partitions led by this broker.",
            lambda: len(self._draining.writers),
        )
        metrics.add_gauge(
            "penstock_draining_groups_behind",
            "Groups that have not read draining partitions led by this broker, counted for each partition.",
            lambda: sum(each.groups_behind for each in self._draining.advancer.verdicts.values()),
        )
        metrics.add_counter(
            "penstock_removed_partitions",
            "Partitions that this broker has removed as their leader.",
            lambda: self._draining.advancer.removed,
        )

    def _count(self, phase: PartitionPhase) -> int:
        return sum(
            each is phase or (phase is PartitionPhase.DRAINING and each is PartitionPhase.SEALING)
            for each in self._phases()
        )

    def _phases(self) -> Iterator[PartitionPhase]:
        """Phases of the partitions that are being removed and that this broker leads."""
        for topic in self._draining.topics:
            for state in topic.partitions[topic.active_count :]:
                if state.leader == self._context.node_id:
                    yield state.phase
