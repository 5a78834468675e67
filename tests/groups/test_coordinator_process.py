"""Acknowledged offset commits survive `kill -9`."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker_process import BrokerProcess, StartBroker

COMMITS = 50


def consumer_of(broker: BrokerProcess, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})


def test_acknowledged_commits_survive_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 1)]).values():
        future.result(20)
    consumers = {name: consumer_of(broker, name) for name in ("a", "b", "c")}
    for number in range(1, COMMITS + 1):
        for consumer in consumers.values():
            consumer.commit(offsets=[TopicPartition("orders", 0, number)], asynchronous=False)
    broker.kill()
    broker.start()
    for name, consumer in consumers.items():
        consumer.close()
        again = consumer_of(broker, name)
        (found,) = again.committed([TopicPartition("orders", 0)], timeout=20)
        assert found.offset == COMMITS
        again.close()
