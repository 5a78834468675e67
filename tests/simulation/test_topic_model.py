"""The promises of a topic, by its number of replicas."""

from __future__ import annotations

import pytest

from simulation.models.history import Audit, InvariantViolated, Outcome, Write
from simulation.models.topic_model import TopicModel


def write(acks: int) -> Write:
    return Write((b"value",), (b"key",), (), "lane", 1, acks, weak_changes=0)


def acknowledged(replicas: int, acks: int) -> TopicModel:
    topic = TopicModel("orders", 1, 1, {}, replicas)
    sent = write(acks)
    topic.partitions[0].on_send(sent)
    topic.on_ack(0, sent, base_offset=0)
    assert sent.outcome is Outcome.OK
    return topic


@pytest.mark.parametrize("replicas", [1, 3])
def test_record_acknowledged_by_all_replicas_stays(replicas: int) -> None:
    with pytest.raises(InvariantViolated, match="I1"):
        acknowledged(replicas, acks=-1).on_audit([Audit(0, 0, ())], cache_lost=True)


def test_record_acknowledged_by_the_leader_alone_may_be_lost_with_it() -> None:
    acknowledged(3, acks=1).on_audit([Audit(0, 0, ())], cache_lost=False)


def test_record_acknowledged_by_the_only_replica_is_lost_with_its_cache_only() -> None:
    acknowledged(1, acks=1).on_audit([Audit(0, 0, ())], cache_lost=True)
    with pytest.raises(InvariantViolated, match="I1"):
        acknowledged(1, acks=1).on_audit([Audit(0, 0, ())], cache_lost=False)


def test_log_start_may_go_back_only_between_replicas_with_retention() -> None:
    retention = {"retention.ms": "1000"}
    assert TopicModel("orders", 1, 1, retention, replicas=3).partitions[0].may_start_earlier
    assert not TopicModel("orders", 1, 1, retention).partitions[0].may_start_earlier
    assert not TopicModel("orders", 1, 1, {}, replicas=3).partitions[0].may_start_earlier
