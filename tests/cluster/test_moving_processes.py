"""Reassignments between broker processes by unmodified clients, while one dies (T41 in docs/faults.md);
rack-aware consumers.
"""

from __future__ import annotations

import gc
import json
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from test_broker_cluster import PATIENCE_SECONDS, SESSION_TIMEOUT_MS, admin_of, consume, metadata_of

from penstock.cli.cluster.zookeeper_process import ZooKeeperProcess
from support.broker_process import BrokerProcess
from support.eventually import eventually

with warnings.catch_warnings():  # its own
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as Partition


RACKS = {1: "a", 2: "b", 3: "c"}


@pytest.fixture(scope="module")
def brokers(
    zookeeper_server: ZooKeeperProcess, chroots: Iterator[int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, BrokerProcess]]:
    zookeeper = f"127.0.0.1:{zookeeper_server.port}/test/{next(chroots)}"
    made = {}
    for number, rack in RACKS.items():
        directory = tmp_path_factory.mktemp(f"broker-{number}")
        settings = (
            f"node.id={number}",
            f"broker.rack={rack}",
            f"zookeeper.connect={zookeeper}",
            f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}",
            "offsets.topic.num.partitions=4",
            "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector",
        )
        made[number] = BrokerProcess(directory, settings)
    try:
        for broker in made.values():
            broker.start()
        eventually(lambda: all(set(metadata_of(broker).brokers) == set(RACKS) for broker in made.values()))
        yield made
        for broker in made.values():
            broker.stop()
    finally:
        for broker in made.values():
            broker.kill()


class Load:
    """Producer of increasing numbers that runs until it is stopped and counts the acknowledged ones."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: set[int] = set()
        self.failures: list[str] = []
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 60_000}
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._producer.produce(
                self._topic, str(number).encode(), partition=0, on_delivery=self._on_delivery
            )
            number += 1
            self._producer.poll(0.001)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.add(int(message.value()))
        else:
            self.failures.append(str(error))

    def more(self, count: int = 200) -> None:
        enough = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= enough)

    def end(self) -> set[int]:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_SECONDS) == 0
        assert not self.failures
        return self.acknowledged


def create(broker: BrokerProcess, topic: str, replicas: list[int]) -> None:
    new = NewTopic(topic, 1, replica_assignment=[replicas])
    admin = admin_of(broker)
    admin.create_topics([new])[topic].result(PATIENCE_SECONDS)


def replicas_of(broker: BrokerProcess, topic: str) -> tuple[set[int], set[int]]:
    partition = metadata_of(broker).topics[topic].partitions[0]
    return set(partition.replicas), set(partition.isrs)


def directories(broker: BrokerProcess, topic: str) -> list[Path]:
    return [path for path in (broker.data_dir / "logs").iterdir() if path.name.startswith(f"{topic}-")]


@pytest.fixture
def admin(brokers: dict[int, BrokerProcess]) -> Iterator[KafkaAdminClient]:
    yield KafkaAdminClient(bootstrap_servers=[broker.bootstrap for broker in brokers.values()])
    with warnings.catch_warnings():  # the client forgets sockets of refused connections
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_reassignment_under_load_survives_broker_death(
    brokers: dict[int, BrokerProcess], admin: KafkaAdminClient
) -> None:
    bootstrap = ",".join(broker.bootstrap for broker in brokers.values())
    create(brokers[1], "orders", [1, 2])
    load = Load(bootstrap, "orders")
    load.more()
    admin.alter_partition_reassignments({Partition("orders", 0): [2, 3]})
    eventually(lambda: replicas_of(brokers[1], "orders") == ({2, 3}, {2, 3}))
    eventually(lambda: not directories(brokers[1], "orders"))
    load.more()
    # The reassignment back waits for the target broker, which dies.
    admin.alter_partition_reassignments({Partition("orders", 0): [1, 2]})
    brokers[1].kill()
    load.more()
    brokers[1].start()
    eventually(lambda: replicas_of(brokers[2], "orders") == ({1, 2}, {1, 2}))
    eventually(lambda: not admin.list_partition_reassignments())
    load.more()
    acknowledged = load.end()
    admin.close()
    assert consume(bootstrap, "orders", len(acknowledged)) >= acknowledged


def test_client_elects_preferred_leader(brokers: dict[int, BrokerProcess]) -> None:
    create(brokers[2], "preferred", [1, 2, 3])
    brokers[1].stop()
    eventually(lambda: metadata_of(brokers[2]).topics["preferred"].partitions[0].leader in (2, 3))
    brokers[1].start()
    eventually(lambda: replicas_of(brokers[2], "preferred")[1] == {1, 2, 3})
    name = TopicPartition("preferred", 0)
    admin = admin_of(brokers[2])
    elected = admin.elect_leaders(ElectionType.PREFERRED, [name]).result(PATIENCE_SECONDS)
    assert elected[name] is None
    eventually(lambda: metadata_of(brokers[2]).topics["preferred"].partitions[0].leader == 1)


def test_a_consumer_reads_from_the_follower_in_its_rack(brokers: dict[int, BrokerProcess]) -> None:
    create(brokers[1], "near", [1, 2, 3])
    bootstrap = brokers[1].bootstrap
    load = Load(bootstrap, "near")
    load.more()
    served_by: set[int] = set()

    def on_statistics(text: str) -> None:
        partitions = json.loads(text)["topics"].get("near", {}).get("partitions", {})
        served_by.add(partitions.get("0", {}).get("broker", -1))

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "client.rack": "b",
        "auto.offset.reset": "earliest",
        "statistics.interval.ms": 100,
        "stats_cb": on_statistics,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("near", 0, 0)])
    seen: set[int] = set()

    def reads_there() -> bool:
        for message in consumer.consume(100, 0.1):
            assert message.error() is None
            seen.add(int(message.value() or b""))
        return 2 in served_by

    eventually(reads_there)
    acknowledged = load.end()

    def has_all() -> bool:
        reads_there()
        return seen >= acknowledged

    eventually(has_all)
    consumer.close()
