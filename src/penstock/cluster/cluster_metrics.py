"""Metrics of cluster events: controller changes, leader changes and dead brokers, as seen by this broker."""

from __future__ import annotations

from penstock.cluster.image import NO_LEADER, ClusterImage, ImageChange
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.peers import Peers
from penstock.observability.metrics import BrokerMetrics


class ClusterMetrics:
    def __init__(self, metadata: ClusterMetadata, peers: Peers) -> None:
        self._peers = peers
        self._controller_changes = 0
        self._leader_changes = 0
        metadata.subscribe(self._on_image)

    def show(self, metrics: BrokerMetrics) -> None:
        metrics.add_counter(
            "penstock_controller_changes",
            "Elections of another broker as controller, as seen by this broker.",
            lambda: self._controller_changes,
        )
        metrics.add_counter(
            "penstock_leader_changes",
            "Leader changes of partitions, including those to no leader, as seen by this broker.",
            lambda: self._leader_changes,
        )
        metrics.add_counter(
            "penstock_brokers_found_dead",
            "Dead brokers that this broker detected by their closed port and removed from the cluster.",
            lambda: self._peers.found_dead,
        )

    def _on_image(self, change: ImageChange) -> None:
        before, after = change.before, change.after
        self._controller_changes += after.controller_id not in (before.controller_id, NO_LEADER)
        self._leader_changes += sum(_leader_changes(before, after, topic) for topic in change.topics)


def _leader_changes(before: ClusterImage, after: ClusterImage, name: str) -> int:
    old, new = before.topic(name), after.topic(name)
    if old is None or new is None or old.id != new.id:
        return 0
    # Added partitions have no counterpart in the old image.
    pairs = zip(old.partitions, new.partitions, strict=False)
    return sum(one.leader_epoch != other.leader_epoch for one, other in pairs)
