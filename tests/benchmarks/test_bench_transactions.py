"""The transaction driver commits the messages that it counts, in transactions of the requested size."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.driver import run_driver
from support.broker_process import Address
from support.cluster_processes import BROKERS

PARTITIONS = 4
PRODUCERS = 2
WARM_UP = 5


def test_small_transactions_are_counted_and_committed(broker: Address, topic_name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic_name, PARTITIONS, BROKERS)])[topic_name].result(60)
    place = {"bootstrap": broker.bootstrap, "topic": topic_name, "partitions": PARTITIONS}
    done = run_driver("transactions", producers=PRODUCERS, seconds=0.3, size=100, messages=10, **place)
    assert done["transactions"] >= PRODUCERS
    assert done["messages"] == 10 * done["transactions"]
    assert done["bytes"] == 100 * done["messages"]
    assert 0 < done["p50_ms"] <= done["p99_ms"]
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    ends = [
        reader.get_watermark_offsets(TopicPartition(topic_name, each), 60)[1] for each in range(PARTITIONS)
    ]
    reader.close()
    assert sum(ends) >= done["messages"] + WARM_UP * PRODUCERS * 10


def test_transactions_stay_open_for_the_requested_time(broker: Address, topic_name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic_name, PARTITIONS, BROKERS)])[topic_name].result(60)
    place = {"bootstrap": broker.bootstrap, "topic": topic_name, "partitions": PARTITIONS}
    done = run_driver("transactions", producers=1, seconds=0.3, size=100, open_s=0.1, **place)
    assert 1 <= done["transactions"] <= 3
    assert done["seconds"] >= 0.1 * done["transactions"]
