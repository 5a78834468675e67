"""Delayed messages while brokers are killed before, at and after the due times: each comes once, and none early."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from linked_cluster import StartCluster

from penstock.testing.process import BrokerProcess
from support.broker_process import StartBroker

TOPIC = "reminders"
MESSAGES = 1_500
PATIENCE_S = 90.0


def write(bootstrap: str, stored: dict[int, int], aborted: set[int]) -> None:
    """Send messages that are due within two seconds; every tenth in a transaction, of which every second is aborted."""
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "deaths"})
    transactional.init_transactions(PATIENCE_S)

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        stored[int(message.value())] = message.offset()

    for number in range(MESSAGES):
        headers = [("penstock-delay-ms", b"%d" % (number * 37 % 2_000))]
        value = b"%d" % number
        if number % 10:
            plain.produce(TOPIC, value, headers=headers, partition=0, on_delivery=note)
            plain.poll(0.004)
        elif not end_transaction(transactional, value, headers, is_kept=number % 20 == 0):
            aborted.add(number)
        else:
            stored[number] = -1
    assert plain.flush(PATIENCE_S) == 0


def end_transaction(
    producer: Producer, value: bytes, headers: list[tuple[str, bytes]], *, is_kept: bool
) -> bool:
    """Send one message in a transaction; True if it was committed."""
    producer.begin_transaction()
    producer.produce(TOPIC, value, headers=headers, partition=0)
    if is_kept:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    return is_kept


class Reader:
    def __init__(self, bootstrap: str) -> None:
        self.found: list[int] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def read_more(self, count: int) -> None:
        wanted = len(self.found) + count
        self.read_until(lambda: len(self.found) >= wanted)

    def read_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{len(self.found)} messages came"
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            assert message.timestamp()[1] <= time.time() * 1000 + 1, "a message is early"
            self.found.append(int(message.value()))

    def read_all(self, stored: dict[int, int], aborted: set[int]) -> None:
        """Read until every message came, and then as long as another one might come."""
        self.read_until(lambda: set(self.found) >= set(stored))
        end = time.monotonic() + 2.5
        self.read_until(lambda: time.monotonic() > end)
        self._consumer.close()
        assert len(self.found) == len(set(self.found)), "a message came twice"
        assert set(self.found) == set(stored)
        assert not aborted & set(self.found)


def run(bootstrap: str, kill: Callable[[], None], kills: int) -> None:
    stored: dict[int, int] = {}
    aborted: set[int] = set()
    writing = threading.Thread(target=write, args=(bootstrap, stored, aborted))
    writing.start()
    reader = Reader(bootstrap)
    for _ in range(kills):
        reader.read_more(150)
        kill()
    writing.join(PATIENCE_S)
    assert len(stored) + len(aborted) == MESSAGES
    reader.read_all(stored, aborted)


def test_a_killed_broker_delivers_each_message_once(start_broker: StartBroker) -> None:
    broker: BrokerProcess = start_broker(["durability=os"])
    create(broker.bootstrap, 1)

    def kill() -> None:
        broker.kill()
        broker.start()

    run(broker.bootstrap, kill, 4)


def test_killed_leaders_deliver_each_message_once(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    create(cluster.bootstrap, 3)

    def kill() -> None:
        victim = cluster.leader(TOPIC)
        cluster.kill_brokers([victim])
        cluster.start_brokers([victim])
        cluster.wait_until_healed()

    run(cluster.bootstrap, kill, 3)


def create(bootstrap: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, 1, replicas, config={"delivery.delay": "true"})
    [created] = admin.create_topics([topic]).values()
    created.result(PATIENCE_S)
