"""Schedules while brokers are killed: each time appears in the topic once, and none is left out."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from linked_cluster import StartCluster

from penstock import Admin
from penstock.client.schedules import Schedules
from penstock.testing.process import BrokerProcess
from support.broker_process import StartBroker
from support.eventually import eventually

TOPIC = "ticks"
SCHEDULES = ("first", "second", "third")
PATIENCE_S = 90.0


def create(bootstrap: str, replicas: int) -> dict[str, int]:
    """Create the topic and the schedules; returns the time of creation by schedule, in milliseconds."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [made] = admin.create_topics([NewTopic(TOPIC, 1, replicas)]).values()
    made.result(PATIENCE_S)
    schedules = Admin(bootstrap).schedules
    return {
        name: _ms(schedules.create(name, cron="@every 1s", topic=TOPIC, catch_up="all").created.timestamp())
        for name in SCHEDULES
    }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


class Reader:
    def __init__(self, bootstrap: str) -> None:
        self.found: list[tuple[str, int]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
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
            headers = dict(message.headers())
            fired_for = int(headers["penstock-scheduled-for"])
            assert fired_for <= time.time() * 1000, "a firing is early"
            self.found.append((headers["penstock-schedule"].decode(), fired_for))

    def close(self) -> None:
        self._consumer.close()


def run(bootstrap: str, kill: Callable[[], None], kills: int, created_ms: dict[str, int]) -> None:
    """Kill while schedules fire, then check every message of the topic."""
    reader = Reader(bootstrap)
    for _ in range(kills):
        reader.read_more(7)
        kill()
    schedules = Admin(bootstrap).schedules
    for name in SCHEDULES:
        schedules.pause(name)
    count = eventually(lambda: _settled(schedules), "nothing is in flight", within_s=PATIENCE_S)
    reader.read_until(lambda: len(reader.found) >= count)
    end = time.monotonic() + 2.0
    reader.read_until(lambda: time.monotonic() > end)
    reader.close()
    for name, created in created_ms.items():
        times = [fired_for for each, fired_for in reader.found if each == name]
        assert times == [created + 1_000 * (place + 1) for place in range(len(times))], name


def _settled(schedules: Schedules) -> int:
    """Number of all firings once none is in flight; 0 before."""
    described = [schedules.describe(name) for name in SCHEDULES]
    return 0 if any(each.in_flight for each in described) else sum(each.fired for each in described)


def test_a_killed_broker_fires_for_each_time_once(start_broker: StartBroker) -> None:
    broker: BrokerProcess = start_broker(["durability=os"])
    created = create(broker.bootstrap, 1)

    def kill() -> None:
        broker.kill()
        broker.start()

    run(broker.bootstrap, kill, 5, created)


def test_killed_owners_and_leaders_fire_for_each_time_once(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    created = create(cluster.bootstrap, 3)
    victims = iter(range(100))

    def kill() -> None:
        # In turn: the leader of the topic, and each broker, which own some of the schedules.
        turn = next(victims)
        brokers = sorted(cluster.brokers)
        victim = cluster.leader(TOPIC) if turn % 2 else brokers[turn % len(brokers)]
        cluster.kill_brokers([victim])
        cluster.start_brokers([victim])
        cluster.wait_until_healed()

    run(cluster.bootstrap, kill, 4, created)
