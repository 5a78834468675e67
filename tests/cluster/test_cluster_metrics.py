"""Metrics of cluster events."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from penstock.cluster.cluster_metrics import ClusterMetrics
from penstock.cluster.image import NO_LEADER, ClusterImage, ImageChange, PartitionState, TopicImage
from penstock.model import BrokerId, LeaderEpoch, TopicId
from penstock.observability.metrics import BrokerMetrics

STATE = PartitionState(BrokerId(1), LeaderEpoch(3), (BrokerId(1), BrokerId(2)), (BrokerId(1), BrokerId(2)), 0)


def image(controller: BrokerId, *epochs: int, topic_id: int = 1) -> ClusterImage:
    states = tuple(replace(STATE, leader_epoch=LeaderEpoch(epoch)) for epoch in epochs)
    topic = TopicImage("a", TopicId(UUID(int=topic_id)), states, {}, 0)
    return ClusterImage("c").with_members([], controller).with_topics([topic])


def counted(*images: ClusterImage) -> dict[str, float]:
    subscribers: list[Any] = []
    metadata = SimpleNamespace(subscribe=subscribers.append)
    metrics = BrokerMetrics({}, 10)
    ClusterMetrics(cast(Any, metadata), cast(Any, SimpleNamespace(found_dead=7))).show(metrics)
    for before, after in pairwise(images):
        for tell in subscribers:
            tell(ImageChange(before, after, frozenset({"a"})))
    return {reading.name: reading.read() for reading in metrics.readings}


def test_leader_changes_exclude_new_partitions() -> None:
    one = BrokerId(1)
    found = counted(image(one, 3, 3), image(one, 4, 3), image(one, 4, 5, 0), image(one, 4, 5, 0, topic_id=2))
    assert found["penstock_leader_changes"] == 2
    assert found["penstock_controller_changes"] == 0
    assert found["penstock_brokers_found_dead"] == 7


def test_controller_change_with_gap_counts_once() -> None:
    found = counted(image(BrokerId(1)), image(NO_LEADER), image(BrokerId(2)), image(BrokerId(2)))
    assert found["penstock_controller_changes"] == 1
