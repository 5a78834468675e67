"""Compacted topics whose replicas are fetched again and killed before their first checkpoint."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from linked_cluster import StartCluster

from support.cluster_processes import ClusterProcesses

TOPIC = "compacted"
KEYS = 300
ROUNDS = 4
COPIED = 3
"""The broker whose disk is replaced."""
SETTINGS = {
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "segment.bytes": "4096",
    "min.cleanable.dirty.ratio": "0.01",
}


def fill(cluster: ClusterProcesses) -> None:
    """Write each key several times, so that compaction leaves a gap at the start of the log."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    [made] = admin.create_topics([NewTopic(TOPIC, 1, 3, config=SETTINGS)]).values()
    made.result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.size": 500})
    for number in range(ROUNDS):
        for key in range(KEYS):
            producer.produce(TOPIC, f"value-{number}-{key}", f"key-{key}")
        assert producer.flush(60) == 0


def read(cluster: ClusterProcesses) -> tuple[int, dict[bytes, bytes]]:
    """The first offset read from the log start, and the last value of each key."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    try:
        place = TopicPartition(TOPIC, 0, 0)
        start, end = consumer.get_watermark_offsets(place, timeout=60)
        assert start == 0, "compaction does not move the log start"
        consumer.assign([place])
        found: dict[bytes, bytes] = {}
        first, deadline = -1, time.monotonic() + 60
        while consumer.position([place])[0].offset < end:
            assert time.monotonic() < deadline, "the log was not read to its end"
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None, message.error()
                first = message.offset() if first < 0 else first
                found[message.key()] = message.value()
        return first, found
    finally:
        consumer.close()


def test_a_replica_copied_from_a_compacted_log_survives_kills(start_cluster: StartCluster) -> None:
    cluster = start_cluster(
        "log.cleaner.backoff.ms=200", "log.flush.offset.checkpoint.interval.ms=3000", linked=False
    )
    fill(cluster)
    cluster.until(lambda: read(cluster)[0] > 0, "the start of the log is compacted away")
    _, before = read(cluster)
    assert len(before) == KEYS
    cluster.kill_brokers([COPIED])
    cluster.empty(COPIED)
    cluster.brokers[COPIED].settings = (
        *cluster.brokers[COPIED].settings,
        "log.flush.offset.checkpoint.interval.ms=600000",
        "log.cleaner.enable=false",
    )
    cluster.start_brokers([COPIED])
    cluster.until(lambda: COPIED in cluster.in_sync(TOPIC), "the replaced disk is copied")
    rest = [number for number in cluster.brokers if number != COPIED]
    cluster.kill_brokers(rest)
    cluster.until(lambda: cluster.in_sync(TOPIC, seen_by=COPIED) == {COPIED}, "the copy is alone in sync")
    cluster.kill_brokers([COPIED])
    cluster.start_brokers([COPIED])
    cluster.until(lambda: cluster.leader(TOPIC, seen_by=COPIED) == COPIED, "the copy leads")
    cluster.start_brokers(rest)
    cluster.wait_until_healed()
    _, after = read(cluster)
    assert after == before
