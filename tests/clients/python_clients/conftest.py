"""Fixtures of the confluent-kafka tests. Imports kafka-python with its deprecation warnings silenced."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from confluent import create
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker_process import Address, MakeTopic
from support.cluster_processes import BROKERS

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401


@pytest.fixture
def admin(broker: Address) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})


@pytest.fixture
def make_topic(admin: AdminClient, topic_name: str) -> MakeTopic:
    def make(partitions: int = 1, **config: str) -> str:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        create(admin, NewTopic(topic_name, partitions, BROKERS, config=settings))
        return topic_name

    return make


@pytest.fixture
def consumer(broker: Address) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
        }
    )
    yield consumer
    consumer.close()
