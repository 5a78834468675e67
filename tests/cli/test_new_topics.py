"""CLI commands on a new topic, with brokers that do not have it in their metadata yet."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import ClusterMetadata, TopicMetadata

from penstock.cli import cluster
from penstock.cli.cluster import Cluster
from penstock.cli.failures import Failure


class Hearing(Cluster):
    def __init__(self, answers_without: int) -> None:
        self._answers_without = answers_without

    def metadata(self) -> ClusterMetadata:
        self._answers_without -= 1
        found: Any = ClusterMetadata()
        topic: Any = TopicMetadata()
        topic.partitions = {0: None, 1: None}
        found.topics = {} if self._answers_without >= 0 else {"orders": topic}
        return found


def test_missing_topic_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "HEARD_SECONDS", 0.001)
    assert Hearing(3).partitions_when_known("orders") == [0, 1]


def test_missing_topic_is_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "HEARD_SECONDS", 0.001)
    monkeypatch.setattr(cluster, "REQUEST_SECONDS", 0.01)
    with pytest.raises(Failure, match="there is no topic 'orders'"):
        Hearing(10_000).partitions_when_known("orders")
