"""Late requests of transactional clients with version 1: a request on an old connection has no effect (T30).

kafka-python is not tested here: its producer ends when a transactional request times out.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from late_requests import LateRequests

from support.broker_process import BrokerProcess, StartBroker

PATIENCE_S = 30.0
REQUEST_TIMEOUT_MS = 1_000
ADD_PARTITIONS, END_TXN = 24, 26


class Transactor(Protocol):
    """A client that has started with a new transactional id."""

    def begin(self) -> None: ...

    def send(self, topic: str, value: str) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": uuid.uuid4().hex,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(PATIENCE_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: str) -> None:
        self._producer.produce(topic, value, partition=0)
        assert self._producer.flush(PATIENCE_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)

    def close(self) -> None: ...


class Aiokafka:
    def __init__(self, bootstrap: str) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start(bootstrap))

    async def _start(self, bootstrap: str) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=uuid.uuid4().hex,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        await self._producer.start()

    def begin(self) -> None:
        self._runner.run(self._producer.begin_transaction())

    def send(self, topic: str, value: str) -> None:
        self._runner.run(self._producer.send_and_wait(topic, value.encode(), partition=0))

    def commit(self) -> None:
        self._runner.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._runner.run(self._producer.abort_transaction())

    def close(self) -> None:
        self._runner.run(self._producer.stop())
        self._runner.close()


EVERY_CLIENT = pytest.mark.parametrize("make", [Confluent, Aiokafka])


@pytest.fixture
def proxy() -> Iterator[LateRequests]:
    proxy = LateRequests()
    yield proxy
    proxy.close()


@pytest.fixture
def broker(start_broker: StartBroker, proxy: LateRequests, topic_name: str) -> BrokerProcess:
    broker = start_broker([f"advertised.listeners=127.0.0.1:{proxy.port}"])
    proxy.target_port = broker.port
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic_name, 1)])[topic_name].result(PATIENCE_S)
    return broker


def committed(broker: BrokerProcess, topic: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "enable.partition.eof": False,
            "isolation.level": "read_committed",
        }
    )
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, PATIENCE_S)
    consumer.assign([partition])
    values: list[str] = []
    while consumer.position([partition])[0].offset < end:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
    consumer.close()
    return values


@EVERY_CLIENT
def test_late_commit_does_not_commit_the_next_transaction(
    broker: BrokerProcess, proxy: LateRequests, topic_name: str, make: Callable[[str], Transactor]
) -> None:
    client = make(broker.bootstrap)
    client.begin()
    client.send(topic_name, "first")
    proxy.hold(END_TXN)
    client.commit()
    client.begin()
    client.send(topic_name, "second")
    assert proxy.deliver() == b"", "the connection is closed and nothing else"
    client.send(topic_name, "third")
    client.abort()
    client.begin()
    client.send(topic_name, "last")
    client.commit()
    client.close()
    assert committed(broker, topic_name) == ["first", "last"]


@EVERY_CLIENT
def test_late_partition_opens_no_transaction(
    broker: BrokerProcess, proxy: LateRequests, topic_name: str, make: Callable[[str], Transactor]
) -> None:
    client = make(broker.bootstrap)
    client.begin()
    proxy.hold(ADD_PARTITIONS)
    client.send(topic_name, "first")
    client.commit()
    assert proxy.deliver() == b"", "the connection is closed and nothing else"
    client.begin()
    client.send(topic_name, "second")
    client.commit()
    client.close()
    assert committed(broker, topic_name) == ["first", "second"]
