"""Broker processes on a real ZooKeeper, used by an unmodified client."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, NewTopic

from support.broker_process import BrokerProcess
from support.eventually import eventually

PATIENCE_SECONDS = 60.0
SESSION_TIMEOUT_MS = 2_000


@pytest.fixture
def start_brokers(zookeeper: str, tmp_path: Path) -> Iterator[Callable[[int], dict[int, BrokerProcess]]]:
    made: dict[int, BrokerProcess] = {}

    def start(count: int) -> dict[int, BrokerProcess]:
        for number in range(1, count + 1):
            directory = tmp_path / str(number)
            directory.mkdir()
            settings = (
                f"node.id={number}",
                f"zookeeper.connect={zookeeper}",
                f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}",
                "offsets.topic.num.partitions=4",
            )
            made[number] = BrokerProcess(directory, settings)
            made[number].start()
        return made

    try:
        yield start
    finally:
        for broker in made.values():
            broker.kill()


@pytest.fixture
def brokers(start_brokers: Callable[[int], dict[int, BrokerProcess]]) -> dict[int, BrokerProcess]:
    return start_brokers(2)


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def metadata_of(broker: BrokerProcess) -> ClusterMetadata:
    return admin_of(broker).list_topics(timeout=PATIENCE_SECONDS)


def knows(broker: BrokerProcess, *topics: str) -> bool:
    return set(topics) <= set(metadata_of(broker).topics)


def has_other_controller(broker: BrokerProcess, victim: int) -> bool:
    return metadata_of(broker).controller_id not in (victim, -1)


def create(broker: BrokerProcess, topic: str, partitions: int, replication_factor: int = 1) -> None:
    admin = admin_of(broker)
    admin.create_topics([NewTopic(topic, partitions, replication_factor)])[topic].result(PATIENCE_SECONDS)


def produce(bootstrap: str, topic: str, partitions: int, values: int) -> None:
    failed = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": 60_000,
        }
    )
    for number in range(values):
        producer.produce(
            topic,
            str(number).encode(),
            partition=number % partitions,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert not failed


def watermarks(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watermarks"})
    try:
        found: tuple[int, int] = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), PATIENCE_SECONDS
        )
    finally:
        consumer.close()
    return found


def consume(bootstrap: str, topic: str, values: int) -> set[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    seen: set[int] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(seen) < values and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.add(int(message.value() or b""))
    consumer.close()
    return seen


def test_topics_are_spread_over_registered_brokers(brokers: dict[int, BrokerProcess]) -> None:
    eventually(lambda: all(set(metadata_of(broker).brokers) == {1, 2} for broker in brokers.values()))
    assert {metadata_of(broker).controller_id for broker in brokers.values()} == {1}
    for number, broker in brokers.items():
        create(broker, f"from-{number}", 4)
    for broker in brokers.values():
        eventually(partial(knows, broker, "from-1", "from-2"))
        for number in brokers:
            partitions = metadata_of(broker).topics[f"from-{number}"].partitions.values()
            assert sorted(partition.leader for partition in partitions) == [1, 1, 2, 2]
    for number, broker in brokers.items():
        other = brokers[3 - number]
        produce(broker.bootstrap, f"from-{number}", 4, 200)
        assert consume(other.bootstrap, f"from-{number}", 200) == set(range(200))
    with pytest.raises(KafkaException) as refusal:
        create(brokers[1], "copied", 1, 3)
    assert refusal.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
    for broker in brokers.values():
        broker.stop()


def test_killed_controller_is_replaced(
    brokers: dict[int, BrokerProcess],
) -> None:
    first, second = brokers[1], brokers[2]
    create(first, "orders", 4)
    produce(first.bootstrap, "orders", 4, 100)
    first.kill()
    eventually(lambda: (seen := metadata_of(second)).controller_id == 2 and set(seen.brokers) == {2})

    def leaders() -> list[int]:
        partitions = metadata_of(second).topics["orders"].partitions.values()
        return sorted(partition.leader for partition in partitions)

    eventually(lambda: leaders() == [-1, -1, 2, 2])
    create(second, "alone", 2)
    produce(second.bootstrap, "alone", 2, 10)
    first.start()
    eventually(lambda: leaders() == [1, 1, 2, 2])
    assert metadata_of(first).controller_id == 2
    assert consume(second.bootstrap, "orders", 100) == set(range(100))
    for broker in brokers.values():
        broker.stop()


def test_killed_broker_restarts_before_session_expiry(
    brokers: dict[int, BrokerProcess],
) -> None:
    create(brokers[1], "orders", 4)
    produce(brokers[1].bootstrap, "orders", 4, 100)
    brokers[2].kill()
    brokers[2].start()
    assert consume(brokers[1].bootstrap, "orders", 100) == set(range(100))


def test_removed_alive_broker_registers_again(brokers: dict[int, BrokerProcess]) -> None:
    first, second = brokers[1], brokers[2]
    create(first, "orders", 4)
    os.kill(second.pid, signal.SIGSTOP)
    eventually(lambda: set(metadata_of(first).brokers) == {1})
    os.kill(second.pid, signal.SIGCONT)
    eventually(lambda: set(metadata_of(first).brokers) == {1, 2})
    assert "broker left the cluster" in second.log_tail()
    produce(first.bootstrap, "orders", 4, 100)
    assert consume(second.bootstrap, "orders", 100) == set(range(100))
    for broker in brokers.values():
        broker.stop()


def test_topic_survives_the_death_of_each_broker_in_turn(
    start_brokers: Callable[[int], dict[int, BrokerProcess]],
) -> None:
    brokers = start_brokers(3)
    bootstrap = ",".join(broker.bootstrap for broker in brokers.values())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 3)])["orders"].result(PATIENCE_SECONDS)

    def in_sync() -> list[set[int]]:
        topics = admin.list_topics(timeout=PATIENCE_SECONDS).topics
        return [set(state.isrs) for name in topics for state in topics[name].partitions.values()]

    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    configs = admin.describe_configs([resource])[resource].result(PATIENCE_SECONDS)
    assert configs["min.insync.replicas"].value == "2"
    written = 0
    for victim in brokers:
        brokers[victim].kill()
        other = brokers[victim % 3 + 1]
        eventually(partial(has_other_controller, other, victim))
        create(other, f"made-without-{victim}", 3, replication_factor=3)
        produce(bootstrap, f"made-without-{victim}", 3, 30)
        produce(bootstrap, "orders", 3, 300)
        written += 300
        brokers[victim].start()
        eventually(lambda: all(members == {1, 2, 3} for members in in_sync()))
    assert consume(bootstrap, "orders", 300) == set(range(300))
    ends = {partition: watermarks(bootstrap, "orders", partition) for partition in range(3)}
    assert sum(end for _, end in ends.values()) == written
    for broker in brokers.values():
        broker.stop()
