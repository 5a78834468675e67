"""A view on three brokers whose leaders are killed: its reader gets exactly the acknowledged matches, in order."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from linked_cluster import StartCluster

SOURCE, VIEW = "orders", "orders.wanted"
RECORDS = 3_000
EVERY = 50
PATIENCE_S = 60.0


def test_a_view_survives_killed_leaders(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for topic in (
        NewTopic(SOURCE, 1, 3),
        NewTopic(VIEW, 1, 1, config={"view.of": SOURCE, "view.filter": 'key == "wanted"'}),
    ):
        [created] = admin.create_topics([topic]).values()
        created.result(PATIENCE_S)
    stored: dict[int, int] = {}
    writing = threading.Thread(target=write, args=(cluster.bootstrap, stored))
    writing.start()
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        }
    )
    reader.assign([TopicPartition(VIEW, 0, 0)])
    found: dict[int, int] = {}
    for _ in range(2):
        take(reader, found, len(found) + 5)
        victim = cluster.leader(SOURCE)
        cluster.kill_brokers([victim])
        take(reader, found, len(found) + 5)
        cluster.start_brokers([victim])
        cluster.wait_until_healed()
    writing.join(PATIENCE_S)
    assert len(stored) == RECORDS
    wanted = {offset: number for number, offset in stored.items() if number % EVERY == 0}
    take(reader, found, len(wanted))
    reader.close()
    assert found == wanted


def write(bootstrap: str, stored: dict[int, int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        stored[int(message.value())] = message.offset()

    for number in range(RECORDS):
        key = b"wanted" if number % EVERY == 0 else b"other"
        producer.produce(SOURCE, b"%d" % number, key=key, on_delivery=note)
        producer.poll(0.004)
    producer.flush(PATIENCE_S)


def take(reader: Consumer, found: dict[int, int], count: int) -> None:
    """Read until there are `count` records; offsets never go back."""
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        message = reader.poll(0.5)
        if message is not None and message.error() is None:
            assert message.offset() > max(found, default=-1)
            found[message.offset()] = int(message.value())
