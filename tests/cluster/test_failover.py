"""Three brokers on a real ZooKeeper lose one under an unmodified producer: writes resume and nothing is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.cluster_processes import ClusterProcesses

TOPIC = "kept"
RESUMED_S = 5.0
"""Generous limit in seconds, for busy machines. docs/performance.md has the times of an idle machine."""
SESSION_TIMEOUT_MS = 6_000
SILENT_S = SESSION_TIMEOUT_MS / 1000 + 2.0
PATIENCE_S = 60.0
KILLS = 3
IMPATIENT: dict[str, str | int] = {
    "request.timeout.ms": 1_000,
    "socket.timeout.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 500,
}
"""Short request timeout: by default a client waits for a response for half a minute."""


class SteadyProducer:
    """Producer of increasing numbers that records which were acknowledged, and when."""

    def __init__(self, bootstrap: str, settings: dict[str, str | int]) -> None:
        self.acknowledged: dict[int, float] = {}
        """Times of the acknowledgements."""
        self.failures: list[str] = []
        self._sent: dict[int, float] = {}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0, **settings}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.resumed_after(time.monotonic())

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._sent[number] = time.monotonic()
            self._producer.produce(TOPIC, str(number).encode(), on_delivery=self._on_delivery)
            number += 1
            self._producer.poll(0.005)
        self._producer.flush(PATIENCE_S)

    def _on_delivery(self, error: object, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[int(message.value() or b"")] = time.monotonic()

    def resumed_after(self, since: float) -> float:
        """Seconds until a record that was sent after this moment was acknowledged."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for number, at in tuple(self.acknowledged.items())[-100:]:
                if self._sent[number] > since:
                    return at - since
            time.sleep(0.005)
        raise AssertionError("writes do not resume")

    def stop(self) -> set[int]:
        self._stop.set()
        self._thread.join()
        assert len(self._producer) == 0
        assert not self.failures, self.failures[:3]
        return set(self.acknowledged)


@pytest.fixture
def cluster(starts_clusters: None, zookeeper_parts: None, tmp_path: Path) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path, 3, [f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}"])
    try:
        made.start()
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(PATIENCE_S)
        made.wait_until_healed()
        yield made
    finally:
        made.close()


def read_all(bootstrap: str, count: int) -> set[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "all", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1_000, 0.5):
            assert message.error() is None
            found.add(int(message.value() or b""))
    consumer.close()
    return found


@pytest.mark.drawn
@pytest.mark.parametrize("victim", ["leader", "controller", "follower"])
def test_writes_resume_soon_after_a_kill(cluster: ClusterProcesses, victim: str) -> None:
    producer = SteadyProducer(cluster.bootstrap, {})
    taken = []
    for _ in range(KILLS):
        leader, controller = cluster.leader(TOPIC), cluster.controller()
        follower = min(set(cluster.brokers) - {leader})
        number = {"leader": leader, "controller": controller, "follower": follower}[victim]
        since = time.monotonic()
        cluster.kill_brokers([number])
        taken.append(producer.resumed_after(since))
        cluster.start_brokers([number])
        cluster.wait_until_healed()
    print(f"{victim} killed, writes resumed after", ", ".join(f"{each:.3f} s" for each in taken))
    acknowledged = producer.stop()
    assert max(taken) < RESUMED_S
    assert read_all(cluster.bootstrap, len(acknowledged)) >= acknowledged


def test_writes_resume_after_session_expiry_of_silent_leader(cluster: ClusterProcesses) -> None:
    producer = SteadyProducer(cluster.bootstrap, IMPATIENT)
    leader = cluster.leader(TOPIC)
    since = time.monotonic()
    cluster.pause(leader)
    taken = producer.resumed_after(since)
    print(f"leader silent, writes resumed after {taken:.3f} s")
    cluster.resume(leader)
    cluster.wait_until_healed()
    acknowledged = producer.stop()
    assert SESSION_TIMEOUT_MS / 2000 < taken < SILENT_S
    assert read_all(cluster.bootstrap, len(acknowledged)) >= acknowledged
