"""Consumer groups over a kill or a clean restart of their broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent import create
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from groups import BROKER_SETTINGS, CLASSIC, CONSUMER, COOPERATIVE, PATIENCE_S, Kind, each_kind, wait_for
from support.broker_process import BrokerProcess, StartBroker
from support.cluster_processes import BROKERS

PARTITIONS = 4
DURABLE = [setting for setting in BROKER_SETTINGS if not setting.startswith("durability")]
PATIENT = ["group.consumer.session.timeout.ms=30000"]
"""A session timeout that outlasts the restart of the broker."""


class InstrumentedConsumer:
    """A consumer in this process that counts rebalances, from the statistics of the library."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str, kind: Kind) -> None:
        session = {} if kind is CONSUMER else {"session.timeout.ms": 30_000}
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "statistics.interval.ms": 100,
            "stats_cb": self._note,
            "log_level": 0,
        }
        self.statistics: dict[str, Any] = {}
        self.read: list[tuple[int, int]] = []
        self.consumer = Consumer(kind.config | session | settings)
        self.consumer.subscribe([topic])

    @property
    def rebalances(self) -> int:
        return int(self.statistics.get("rebalance_cnt", 0))

    @property
    def owned(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.read.append((message.partition(), message.offset()))

    def _note(self, text: str) -> None:
        self.statistics = json.loads(text).get("cgrp", {})


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def make_topic(broker: BrokerProcess, name: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    create(admin, NewTopic(name, PARTITIONS, BROKERS))
    return admin


def write(broker: BrokerProcess, topic: str, count: int) -> None:
    """Write this many records to each partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for number in range(count * PARTITIONS):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def committed(broker: BrokerProcess, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    try:
        asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return [place.offset for place in consumer.committed(asked, timeout=PATIENCE_S)]
    finally:
        consumer.close()


@pytest.mark.parametrize("settings", [DURABLE, [*DURABLE, "durability=os"]], ids=["auto", "os"])
def test_committed_offsets_outlive_kill_9(
    start_broker: StartBroker, topic_name: str, settings: list[str]
) -> None:
    broker = start_broker(settings)
    make_topic(broker, topic_name)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "log_level": 0})
    for round_number in range(1, 6):
        offsets = [TopicPartition(topic_name, n, 10 * round_number + n) for n in range(PARTITIONS)]
        consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    broker.kill()
    broker.start()
    assert committed(broker, "g", topic_name) == [50, 51, 52, 53]


@pytest.mark.drawn
@pytest.mark.parametrize("end", ["stop", "kill"])
@each_kind(CLASSIC, COOPERATIVE, CONSUMER)
def test_members_continue_without_a_rebalance_when_their_broker_comes_back(
    start_broker: StartBroker, topic_name: str, stack: ExitStack, kind: Kind, end: str
) -> None:
    broker = start_broker([*DURABLE, *PATIENT])
    make_topic(broker, topic_name)
    members = [InstrumentedConsumer(broker, "g", topic_name, kind) for _ in range(2)]
    for member in members:
        stack.callback(member.consumer.close)

    def poll(condition: Any) -> Any:
        def check() -> bool:
            for member in members:
                member.poll()
            return bool(condition())

        return check

    def settled() -> bool:
        states = [member.statistics.get("join_state") for member in members]
        return [len(member.owned) for member in members] == [2, 2] and states == ["steady"] * 2

    wait_for(poll(settled), "sharing")
    write(broker, topic_name, 5)
    wait_for(poll(lambda: sum(len(member.read) for member in members) >= 5 * PARTITIONS), "reading all")
    for member in members:
        member.consumer.commit(asynchronous=False)
        member.read.clear()
    before = [(member.rebalances, member.owned, member.consumer.memberid()) for member in members]
    getattr(broker, end)()
    broker.start()
    write(broker, topic_name, 5)
    wait_for(poll(lambda: sum(len(member.read) for member in members) >= 5 * PARTITIONS), "reading more")
    for member in members:
        # A commit with an old generation would be refused.
        member.consumer.commit(asynchronous=False)
    assert [(member.rebalances, member.owned, member.consumer.memberid()) for member in members] == before
    assert sorted(place for member in members for place in member.read) == [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(5, 10)
    ]
