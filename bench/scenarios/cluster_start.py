"""Time from empty directories to the first write acknowledged by three replicas, ZooKeeper included."""

from __future__ import annotations

import time
from contextlib import suppress

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.comparison import Bar, Metric, Row, row_of
from bench.context import Context
from bench.target import Target

METRIC = Metric("start_s", "start to first acknowledged write", "s", Bar("value", "at most", 5.0))
TOPIC = "first"
PATIENCE_S = 60.0
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 20, "log_level": 0}


def first_write(context: Context) -> list[Row]:
    """Start a new cluster of each kind in each round, one at a time."""
    found: dict[str, list[float]] = {}
    for number in range(context.rounds):
        for make in context.contestants:
            cluster = make()
            context.say(f"start of a cluster: round {number + 1} of {context.rounds}, {cluster.name}")
            began = time.perf_counter()
            with cluster:
                write_first(cluster)
                found.setdefault(cluster.name, []).append(time.perf_counter() - began)
    return [row_of("3 brokers: start", METRIC, found)]


def write_first(cluster: Target) -> None:
    """Wait until enough brokers know each other: they respond earlier than that."""
    place = {"bootstrap.servers": cluster.bootstrap} | QUICK
    admin = AdminClient(place)
    wanted = NewTopic(TOPIC, 1, cluster.copies, config={"min.insync.replicas": "2"})
    deadline = time.perf_counter() + PATIENCE_S
    while TOPIC not in admin.list_topics(timeout=PATIENCE_S).topics:
        if time.perf_counter() > deadline:
            raise KafkaException(f"{cluster.name} made no topic within {PATIENCE_S} s")
        with suppress(KafkaException):
            admin.create_topics([wanted])[TOPIC].result(PATIENCE_S)
            break
    failed: list[object] = []
    producer = Producer(place | {"acks": "all", "linger.ms": 0})
    producer.produce(TOPIC, b"first", on_delivery=lambda error, _: failed.append(error) if error else None)
    if producer.flush(PATIENCE_S) or failed:
        raise KafkaException(f"{cluster.name} did not take the first write: {failed}")
