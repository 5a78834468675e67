"""Broker of one machine with several processes, which a test starts, stops and kills."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import httpx
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from support.broker_process import BrokerProcess
from support.eventually import eventually
from support.ports import free_range

QUICK = ("durability=os", "offsets.topic.num.partitions=3")
TOPIC = "orders"
PARTITIONS = 6
RECORDS = 600


class Machine:
    """Broker of one data directory, started with any number of processes."""

    def __init__(self, directory: Path) -> None:
        self.broker = BrokerProcess(directory, QUICK)
        self.settings: tuple[str, ...] = QUICK
        self.broker.port = free_range(4)
        self.bootstrap = self.broker.bootstrap

    def start(self, processes: int) -> None:
        self.broker.settings = (*self.settings, f"processes={processes}")
        self.broker.start()

    def start_all(self, processes: int) -> None:
        """Start and wait until all brokers are in the cluster."""
        self.start(processes)
        ids = set(range(1, processes + 1))
        eventually(
            lambda: set(self.metadata().brokers) == ids, f"brokers {ids}", details=self.broker.log_tail
        )

    @property
    def children(self) -> dict[int, psutil.Process]:
        """Broker processes by node id."""
        found = {}
        for child in psutil.Process(self.broker.pid).children():
            arguments = child.cmdline()
            if "--node-id" in arguments:
                found[int(arguments[arguments.index("--node-id") + 1])] = child
        return found

    def metadata(self) -> ClusterMetadata:
        return AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=10)

    def leaders(self, topic: str = TOPIC) -> dict[int, int]:
        partitions = self.metadata().topics[topic].partitions
        return {number: partition.leader for number, partition in partitions.items()}

    def create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
            future.result(30)

    def produce(self, first: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        failures: list[object] = []
        for number in range(first, first + RECORDS):
            producer.produce(
                TOPIC,
                str(number),
                partition=number % PARTITIONS,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(60) == 0
        assert not failures

    def consume(self, count: int, group: str | None = None) -> list[int]:
        """Read all partitions from the beginning, or from the committed offsets of a group."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group or "none",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        if group is None:
            consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        else:
            consumer.subscribe([TOPIC])
        values: list[int] = []

        def has_all() -> bool:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None
                values.append(int(message.value()))
            return len(values) >= count

        eventually(has_all, f"{count} records")
        if group is not None:
            consumer.commit(asynchronous=False)
        consumer.close()
        return sorted(values)

    def health(self) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.broker.http_port}/health", timeout=10)

    def kill(self) -> None:
        """Kill the supervisor and all brokers."""
        if self.broker.running:
            children = self.children.values()
            self.broker.kill()
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
